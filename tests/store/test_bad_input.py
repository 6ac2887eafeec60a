"""Bad input gets the code and the message of a real etcd, which gets the same input; garbage does no harm."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from tests.store.support import etcdctl

from leasehold.etcd.pb import rpc_pb2 as rpc
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.grpc_stubs import rpc_pb2_grpc as stubs
from leasehold.testing.store import StoreProcess

MIB = 1024 * 1024
KV, LEASE = stubs.KVStub, stubs.LeaseStub


def put(key: bytes, **fields: Any) -> rpc.RequestOp:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, **fields))


def nested(depth: int, width: int) -> rpc.TxnRequest:
    ops = [put(b"bad-%d-%d" % (depth, number)) for number in range(width)]
    if depth:
        ops.append(rpc.RequestOp(request_txn=nested(depth - 1, width)))
    return rpc.TxnRequest(success=ops)


CASES: dict[str, tuple[Any, str, Any]] = {
    "empty key, range": (KV, "Range", rpc.RangeRequest()),
    "empty key, put": (KV, "Put", rpc.PutRequest(value=b"x")),
    "empty key, delete": (KV, "DeleteRange", rpc.DeleteRangeRequest()),
    "empty key, compare": (KV, "Txn", rpc.TxnRequest(compare=[rpc.Compare()])),
    "empty key, in a txn": (KV, "Txn", rpc.TxnRequest(success=[put(b"")])),
    "empty operation": (KV, "Txn", rpc.TxnRequest(failure=[rpc.RequestOp()])),
    "negative revision": (KV, "Range", rpc.RangeRequest(key=b"bad", revision=-1)),
    "future revision": (KV, "Range", rpc.RangeRequest(key=b"bad", revision=10**9)),
    "future compaction": (KV, "Compact", rpc.CompactionRequest(revision=10**9)),
    "negative compaction": (KV, "Compact", rpc.CompactionRequest(revision=-5)),
    "unknown lease, put": (KV, "Put", rpc.PutRequest(key=b"bad", lease=12345)),
    "unknown lease, txn": (KV, "Txn", rpc.TxnRequest(success=[put(b"bad", lease=12345)])),
    "unknown lease, revoke": (LEASE, "LeaseRevoke", rpc.LeaseRevokeRequest(ID=12345)),
    "lease of no id, revoke": (LEASE, "LeaseRevoke", rpc.LeaseRevokeRequest()),
    "too large a term": (LEASE, "LeaseGrant", rpc.LeaseGrantRequest(TTL=9_000_000_001)),
    "value and ignore_value": (KV, "Put", rpc.PutRequest(key=b"bad", value=b"x", ignore_value=True)),
    "lease and ignore_lease": (KV, "Put", rpc.PutRequest(key=b"bad", lease=1, ignore_lease=True)),
    "ignore_value of no key": (KV, "Put", rpc.PutRequest(key=b"bad-absent", ignore_value=True)),
    "ignore_lease of no key": (KV, "Put", rpc.PutRequest(key=b"bad-absent", ignore_lease=True)),
    "over-long request": (KV, "Put", rpc.PutRequest(key=b"bad", value=bytes(1536 * 1024))),
    "far too long a request": (KV, "Put", rpc.PutRequest(key=b"bad", value=bytes(3 * MIB))),
    "over-long txn": (KV, "Txn", rpc.TxnRequest(success=[put(b"%d" % n, value=bytes(MIB)) for n in (1, 2)])),
    "over-long in parts": (
        KV,
        "Txn",
        rpc.TxnRequest(success=[put(b"%d" % n, value=bytes(600_000)) for n in (1, 2, 3)]),
    ),
    "too many operations": (KV, "Txn", rpc.TxnRequest(success=[put(b"%d" % n) for n in range(129)])),
    "too many compares": (KV, "Txn", rpc.TxnRequest(compare=[rpc.Compare(key=b"a")] * 129)),
    "too many operations, nested": (KV, "Txn", nested(3, 40)),
    "duplicate key": (KV, "Txn", rpc.TxnRequest(success=[put(b"bad"), put(b"bad")])),
    "duplicate key, nested": (
        KV,
        "Txn",
        rpc.TxnRequest(
            success=[put(b"bad"), rpc.RequestOp(request_txn=rpc.TxnRequest(failure=[put(b"bad")]))],
        ),
    ),
    "put in a deleted range": (
        KV,
        "Txn",
        rpc.TxnRequest(
            success=[
                rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=b"a", range_end=b"z")),
                put(b"bad"),
            ]
        ),
    ),
    "a range that ends before it begins": (KV, "Range", rpc.RangeRequest(key=b"z", range_end=b"a")),
    "a range of everything": (KV, "Range", rpc.RangeRequest(key=b"\0", range_end=b"\0", limit=1, count_only=True)),
}


@pytest.fixture(scope="module")
def channels() -> Iterator[tuple[grpc.Channel, grpc.Channel]]:
    """To a real etcd and to a store: both new, so that they are at the same revision."""
    with EtcdCluster(1) as cluster, StoreProcess() as store:
        options = [("grpc.max_send_message_length", -1)]
        with (
            grpc.insecure_channel(cluster.endpoints[0], options=options) as real,
            grpc.insecure_channel(store.endpoint, options=options) as ours,
        ):
            yield real, ours


def answer(call: Callable[..., Any], request: Any) -> str:
    try:
        answer = call(request, timeout=60)
    except grpc.RpcError as error:
        return f"{error.code()}: {error.details()}"
    answer.header.Clear()
    return str(answer)


@pytest.mark.parametrize("name", CASES)
def test_the_same_words(channels: tuple[grpc.Channel, grpc.Channel], name: str) -> None:
    stub, method, request = CASES[name]
    real, ours = (answer(getattr(stub(channel), method), request) for channel in channels)
    assert ours == real


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 1000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_garbage_closes_the_connection_and_nothing_else(served_store: StoreProcess, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served_store.port), timeout=60) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass  # bytes before it closes the connection
    assert served_store.running


def test_random_bytes_do_no_harm(served_store: StoreProcess, prefix: bytes) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", served_store.port), timeout=60) as connection:
            connection.sendall(os.urandom(2000))
    assert etcdctl(served_store.endpoint, "put", prefix.decode(), "alive") == "OK\n"


def test_bytes_that_are_no_message_are_refused(served_store: StoreProcess) -> None:
    with grpc.insecure_channel(served_store.endpoint) as channel:
        call: Any = channel.unary_unary("/etcdserverpb.KV/Put")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff\xff\xff", timeout=60)
        assert caught.value.code() == grpc.StatusCode.INTERNAL
        unknown: Any = channel.unary_unary("/etcdserverpb.KV/Nonsense")
        with pytest.raises(grpc.RpcError) as caught:
            unknown(b"", timeout=60)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
