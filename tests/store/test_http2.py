"""Our half of HTTP/2, where gRPC's clients do not go by themselves: raw frames, odd headers, slow readers."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import grpc
import pytest
from hpack import Encoder
from tests.store.raw_http2 import REQUEST, Raw, asking, http2_connections, message

import leasehold
from leasehold.etcd.pb import rpc_pb2
from leasehold.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from leasehold.http2.header_codec import HeaderReader, ProtocolBroken, trailers
from leasehold.mvcc.model import Range, RangeResult
from leasehold.mvcc.store import Store
from leasehold.store.server.http2.connection import SENT_TOGETHER_MAX
from leasehold.store.server.serve import StoreServer
from leasehold.testing.waiting import until


def test_header_blocks_are_read_as_they_were_written() -> None:
    encoder, reader = Encoder(), HeaderReader()
    for number in range(200):
        sent = [("x-number", str(number)), (":path", "/a/b"), ("x-" + "n" * number, "v" * (number * 7)), *REQUEST]
        block = encoder.encode(sent, huffman=bool(number % 3))
        assert reader.read(block) == [(name.encode(), value.encode()) for name, value in sent]


def test_bad_header_blocks_are_refused() -> None:
    for block in (b"\x80", b"\xff\xff\xff\xff\xff\xff", b"\xc5", b"\x40\x05ab", b"\x3f\xe2\xff\x7f", b"\x00"):
        with pytest.raises((ProtocolBroken, IndexError)):
            HeaderReader().read(block)


def test_messages_in_trailers_are_percent_encoded() -> None:
    found = dict(HeaderReader().read(trailers(3, 'bad: "100%" ä\n')))
    assert found == {b"grpc-status": b"3", b"grpc-message": b'bad: "100%25" %C3%A4%0A'}


async def test_headers_in_pieces_and_padding(server: StoreServer) -> None:
    raw = await Raw.connect(server)
    block = Encoder().encode(REQUEST)
    data = message(rpc_pb2.RangeRequest(key=b"a"))
    padded = bytes((3,)) + data[:4] + bytes(3)
    raw.writer.write(
        frame(HEADERS, PADDED, 1, bytes((2,)) + block[:10] + bytes(2))
        + frame(CONTINUATION, 0, 1, block[10:40])
        + frame(CONTINUATION, END_HEADERS, 1, block[40:])
        + frame(DATA, PADDED, 1, padded)
        + frame(DATA, END_STREAM, 1, data[4:])
    )
    await raw.until(HEADERS)
    _, _, answer = await raw.until(DATA)
    assert rpc_pb2.RangeResponse.FromString(answer[5:]).header.revision == 1
    flags, _, block = await raw.until(HEADERS)
    assert flags & END_STREAM
    assert dict(raw.headers.read(block)) == {b"grpc-status": b"0"}
    raw.writer.write(frame(PING, 0, 0, b"12345678"))
    assert (await raw.until(PING))[2] == b"12345678"
    raw.writer.close()


async def test_the_first_answers_to_a_burst_leave_while_the_rest_is_worked_on(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client and server took turns, and each was idle half of the time."""
    host, port = server.address.split(":")
    read, got = Store.range, list[int]()
    with socket.create_connection((host, int(port))) as client:

        def read_while_the_client_looks(store: Store, op: Range) -> RangeResult:
            if op.key == b"last":
                got.append(len(client.recv(1 << 20)))
            return read(store, op)

        monkeypatch.setattr(Store, "range", read_while_the_client_looks)
        client.settimeout(10)
        keys = [b"%d" % number for number in range(SENT_TOGETHER_MAX + 5)] + [b"last"]
        calls = [
            asking("/etcdserverpb.KV/Range", 2 * number + 1, rpc_pb2.RangeRequest(key=key))
            for number, key in enumerate(keys)
        ]
        client.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + b"".join(calls))
        await until(lambda: bool(got))
    assert got[0] > 1_000


async def test_answers_keep_to_the_windows(server: StoreServer) -> None:
    """A client that grants little gets little, until it grants more."""
    async with await leasehold.connect(server.url) as client:
        await client.put(b"a", bytes(100_000))
    raw = await Raw.connect(server, struct.pack(">HI", 4, 1000))
    block = Encoder().encode(REQUEST)
    data = message(rpc_pb2.RangeRequest(key=b"a"))
    raw.writer.write(frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, data))
    received = len((await raw.until(DATA))[2])
    assert received == 1000
    raw.writer.write(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 200_000)))
    while received < 65_535:  # the window of the whole connection
        received += len((await raw.until(DATA))[2])
    assert received == 65_535
    raw.writer.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 200_000)))
    while received < 100_000:
        received += len((await raw.until(DATA))[2])
    flags, _, _ = await raw.until(HEADERS)
    assert flags & END_STREAM
    raw.writer.close()


@pytest.mark.parametrize(
    "broken",
    [
        frame(CONTINUATION, END_HEADERS, 1, b"\x82"),
        frame(HEADERS, END_HEADERS, 2, b"\x82"),
        frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff\x82"),
        frame(HEADERS, 0, 1, b"\x82") + frame(PING, 0, 0, bytes(8)),
        frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7FFFFFFF)),
        struct.pack(">IBI", (2 << 20) << 8, 0, 1),
    ],
)
async def test_a_broken_protocol_ends_that_connection_only(server: StoreServer, broken: bytes) -> None:
    async with await leasehold.connect(server.url) as client:
        raw = await Raw.connect(server)
        raw.writer.write(broken)
        await raw.until(GOAWAY)
        assert await raw.closed()
        await client.put(b"a")


async def test_a_request_that_is_too_long_is_refused_before_it_has_come(server: StoreServer) -> None:
    raw = await Raw.connect(server)
    block = Encoder().encode(REQUEST)
    raw.writer.write(
        frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, 0, 1, struct.pack(">BI", 0, 50 << 20) + bytes(1000))
    )
    flags, _, block = await raw.until(HEADERS)
    assert flags & END_STREAM
    assert dict(raw.headers.read(block))[b"grpc-status"] == b"8"
    await raw.until(RST_STREAM)
    raw.writer.close()


async def test_large_answers_and_many_concurrent_calls(server: StoreServer) -> None:
    async with await leasehold.connect(server.url) as client:
        await asyncio.gather(*(client.put(b"%03d" % number, bytes(100_000), timeout_s=60) for number in range(60)))
        everything = await asyncio.gather(*(client.get(b"\0", b"\0", timeout_s=60) for _ in range(4)))
        assert all(len(found.kvs) == 60 for found in everything)


async def test_a_watcher_that_does_not_read_costs_little(server: StoreServer) -> None:
    """The answers that it does not take stay in the store's history, not in the connection."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        call: Any = channel.stream_stream("/etcdserverpb.Watch/Watch")()
        create = rpc_pb2.WatchCreateRequest(key=b"a")
        await call.write(rpc_pb2.WatchRequest(create_request=create).SerializeToString())
        await call.read()
        async with await leasehold.connect(server.url) as client:
            for _ in range(300):
                await client.put(b"a", bytes(100_000))
        held = [len(served.held) for connection in http2_connections(server) for served in connection.calls.values()]
        assert max(held) < 4 << 20
        seen = 0
        async with asyncio.timeout(60):
            while seen < 300:
                answer = rpc_pb2.WatchResponse.FromString(await call.read())
                assert not answer.canceled
                seen += len(answer.events)
        call.cancel()
