"""Fenced writes without protobuf objects and tasks: the same bytes, the same results, the same failures."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.base.errors import LeaseholdError, UnknownOutcome
from leasehold.coord.api import Sends
from leasehold.etcd import codec
from leasehold.etcd.client import EtcdCoord
from leasehold.etcd.fenced_txn import FencedTxnDecoder, FencedTxnEncoder
from leasehold.etcd.pb import rpc_pb2
from leasehold.journal.fenced_writer import FencedWriter, slot_key
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    OpResult,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)
from leasehold.testing.etcd import EtcdCluster

NUMBERS = st.integers(0, (1 << 63) - 1)


def written(epoch: int, key: bytes, value: bytes, lease: int = 0, leader: bytes = b"/c/leader") -> Txn:
    return FencedWriter(leader, epoch).write(0, key, value, lease)


@given(
    NUMBERS, st.binary(min_size=1, max_size=300), st.binary(min_size=1, max_size=300), st.binary(min_size=1), NUMBERS
)
def test_the_template_gives_the_bytes_of_the_general_codec(
    epoch: int, leader: bytes, key: bytes, value: bytes, lease: int
) -> None:
    txn = written(epoch, key, value, lease, leader)
    assert FencedTxnEncoder().encode(txn) == codec.txn_request(txn).SerializeToString()


def test_one_encoder_follows_its_leader_through_slots_and_epochs() -> None:
    encoder = FencedTxnEncoder()
    for epoch in (7, 300):
        writer = FencedWriter(b"/c/leader", epoch)
        for number in range(1, 5):
            txn = writer.write(0, slot_key(b"/c/journal/", number), b"v" * (number * 100))
            assert encoder.encode(txn) == codec.txn_request(txn).SerializeToString()
            again = writer.again(1, lease=9)
            assert encoder.encode(again) == codec.txn_request(again).SerializeToString()
            writer.judge(TxnResult(codec.header(rpc_pb2.ResponseHeader(revision=1)), True))


@pytest.mark.parametrize(
    "change",
    [
        lambda txn: Txn(txn.compare[:1], txn.success, txn.failure),
        lambda txn: Txn(txn.compare[::-1], txn.success, txn.failure),
        lambda txn: Txn(txn.compare, (*txn.success, Put(b"other", b"x")), txn.failure),
        lambda txn: Txn(txn.compare, (Put(b"another-slot", b"value"),), txn.failure),
        lambda txn: Txn(txn.compare, (Put(b"slot", b"value", prev_kv=True),), txn.failure),
        lambda txn: Txn(txn.compare, (Put(b"slot", b""),), txn.failure),
        lambda txn: Txn(txn.compare, (Range(b"slot"),), txn.failure),
        lambda txn: Txn(txn.compare, txn.success, txn.failure[:1]),
        lambda txn: Txn(txn.compare, txn.success, (txn.failure[0], Range(b"slot", limit=1))),
        lambda txn: Txn(txn.compare, txn.success, (Range(b"/c/leader"), txn.failure[1])),
        lambda txn: Txn(
            (Compare(b"/c/leader", CompareTarget.MOD, CompareResult.EQUAL, 5), txn.compare[1]), txn.success, txn.failure
        ),
    ],
)
def test_any_other_transaction_is_left_to_the_general_codec(change: Any) -> None:
    encoder, txn = FencedTxnEncoder(), written(5, b"slot", b"value")
    assert encoder.encode(change(txn)) is None
    assert encoder.encode(txn) is not None
    assert encoder.encode(change(txn)) is None, "also once the template is known"


def answer(revision: int, **changes: Any) -> rpc_pb2.TxnResponse:
    header = rpc_pb2.ResponseHeader(cluster_id=1 << 63, member_id=12345, revision=revision, raft_term=3)
    put = rpc_pb2.ResponseOp(response_put=rpc_pb2.PutResponse(header=rpc_pb2.ResponseHeader(revision=revision)))
    fields: dict[str, Any] = {"header": header, "succeeded": True, "responses": [put], **changes}
    return rpc_pb2.TxnResponse(**fields)


@given(st.lists(st.integers(1, (1 << 63) - 1), min_size=1, max_size=5))
def test_answers_are_decoded_as_by_the_general_codec(revisions: list[int]) -> None:
    decoder = FencedTxnDecoder()
    decoder.learn(answer(100))
    for revision in revisions:
        message = answer(revision)
        found = decoder.decode(message.SerializeToString())
        assert found is None or found == codec.txn_result(message)
        assert decoder.learn(message) == codec.txn_result(message)
        assert decoder.decode(message.SerializeToString()) == codec.txn_result(message), "its shape is known now"


def test_an_answer_of_another_shape_is_not_decoded() -> None:
    decoder = FencedTxnDecoder()
    assert decoder.decode(b"") is None
    assert decoder.decode(answer(100).SerializeToString()) is None, "no shape is known yet"
    decoder.learn(answer(100))
    usual = answer(101).SerializeToString()
    assert decoder.decode(usual) is not None
    other_revision = rpc_pb2.ResponseOp(response_put=rpc_pb2.PutResponse(header=rpc_pb2.ResponseHeader(revision=102)))
    for message in (
        answer(101, succeeded=False),
        answer(101, responses=[]),
        answer(101, responses=[other_revision]),
        answer(101, header=rpc_pb2.ResponseHeader(cluster_id=1 << 63, member_id=12345, revision=101, raft_term=4)),
    ):
        assert decoder.decode(message.SerializeToString()) is None
    for changed in (usual[:-1], usual + b"\0", usual[1:]):
        assert decoder.decode(changed) is None


class Sent:
    """One request, and what came of it."""

    def __init__(self, coord: Sends, txn: Txn, timeout_s: float = 20.0) -> None:
        self.result: asyncio.Future[OpResult] = asyncio.get_running_loop().create_future()
        self._rest: asyncio.Task[None] | None = None
        self.call = coord.send(txn, timeout_s, self.result.set_result, self._unfinished)

    def _unfinished(self, rest: Coroutine[Any, Any, OpResult]) -> None:
        self._rest = asyncio.create_task(self._go_on(rest))

    async def _go_on(self, rest: Coroutine[Any, Any, OpResult]) -> None:
        try:
            self.result.set_result(await rest)
        except LeaseholdError as error:
            self.result.set_exception(error)


async def test_writes_on_a_real_etcd_and_what_the_slot_holds(etcd: EtcdCluster) -> None:
    coord, prefix = EtcdCoord(etcd.endpoints), uuid4().hex.encode() + b"/"
    try:
        leader = prefix + b"leader"
        assert Sent(coord, written(0, slot_key(prefix, 1), b"a", leader=leader)).call is None, "not connected yet"
        epoch = (await coord.put(leader, b"me")).header.revision
        for number in range(1, 4):
            txn = written(epoch, slot_key(prefix, number), b"value", leader=leader)
            result = await Sent(coord, txn).result
            assert isinstance(result, TxnResult)
            assert result.succeeded
            assert result.header.cluster_id
            kv = await coord.get_one(slot_key(prefix, number))
            assert kv is not None
            assert (kv.value, kv.mod_revision) == (b"value", result.header.revision)
        taken = await Sent(coord, written(epoch, slot_key(prefix, 2), b"other", leader=leader)).result
        deposed = await Sent(coord, written(epoch + 1, slot_key(prefix, 9), b"other", leader=leader)).result
        assert isinstance(taken, TxnResult)
        assert isinstance(deposed, TxnResult)
        assert not taken.succeeded
        assert not deposed.succeeded
        read = taken.results[1]
        assert isinstance(read, RangeResult)
        assert read.kvs[0].value == b"value"
        assert await coord.get_one(slot_key(prefix, 9)) is None
    finally:
        await coord.close()
    assert Sent(coord, written(1, b"slot", b"a")).call is None, "closed"


async def test_an_abandoned_write_calls_nothing_back(etcd: EtcdCluster) -> None:
    coord, prefix = EtcdCoord(etcd.endpoints), uuid4().hex.encode() + b"/"
    try:
        await coord.put(prefix, b"connected")
        sent = Sent(coord, written(0, slot_key(prefix, 1), b"a", leader=prefix + b"leader"))
        assert sent.call is not None
        sent.call.abandon()
        await coord.put(prefix, b"later, on the same connection")
        assert not sent.result.done()
    finally:
        await coord.close()


async def test_a_write_without_an_answer_has_an_unknown_outcome() -> None:
    async with EtcdCluster(1) as cluster:
        coord = EtcdCoord(cluster.endpoints)
        try:
            await coord.put(b"k", b"connected")
            cluster.nodes[0].freeze()
            late = Sent(coord, written(0, slot_key(b"a/", 1), b"a"), 0.2)
            lost = Sent(coord, written(0, slot_key(b"a/", 2), b"a"))
            assert late.call is not None
            with pytest.raises(UnknownOutcome, match="no answer in time"):
                await late.result
            cluster.nodes[0].kill()
            with pytest.raises(UnknownOutcome, match="may have been done"):
                await lost.result
        finally:
            await coord.close()


async def test_an_error_of_the_store_is_raised(etcd: EtcdCluster) -> None:
    coord = EtcdCoord(etcd.endpoints)
    try:
        await coord.put(b"k", b"connected")
        sent = Sent(coord, written(0, uuid4().hex.encode(), b"a", lease=12345))
        assert sent.call is not None
        with pytest.raises(LeaseholdError, match="lease not found"):
            await sent.result
    finally:
        await coord.close()
