"""Clients of the served store that mean it ill, or that are broken: they harm themselves only, within bounds."""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path
from typing import Any

import grpc
import pytest
from hpack import Encoder
from tests.store.raw_http2 import Raw, asking, http2_connections, message, opening

import leasehold
from leasehold.etcd.pb import lock_pb2, rpc_pb2
from leasehold.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from leasehold.http2.header_codec import HeaderReader, ProtocolBroken
from leasehold.store.opening import open_folder
from leasehold.store.server.clients import Burden
from leasehold.store.server.http2 import connection as http2
from leasehold.store.server.serve import StoreServer
from leasehold.testing.waiting import until

RANGE, PUT, WATCH = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Put", "/etcdserverpb.Watch/Watch"
MIB = 1 << 20


async def status_of(raw: Raw, stream: int) -> tuple[int, str]:
    """How a call ended."""
    while True:
        flags, found, block = await raw.until(HEADERS)
        headers = dict(raw.headers.read(block))
        if found == stream and flags & END_STREAM:
            return int(headers[b"grpc-status"]), headers.get(b"grpc-message", b"").decode()


async def count(server: StoreServer) -> int:
    async with await leasehold.connect(server.url) as client:
        return (await client.get(b"\0", b"\0", count_only=True)).count


async def test_a_call_without_a_request_is_answered(server: StoreServer) -> None:
    raw = await Raw.connect(server)
    raw.writer.write(opening(RANGE, 1, end=True))
    assert (await status_of(raw, 1))[0] == 13
    raw.writer.write(opening(RANGE, 3) + frame(DATA, END_STREAM, 3, b"\0\0\0\0\x09abc"))
    assert (await status_of(raw, 3))[0] == 13
    raw.writer.write(opening(WATCH, 5) + frame(DATA, END_STREAM, 5, b"\0\0\0\0\x09abc"))
    assert (await status_of(raw, 5))[0] == 13
    assert not next(iter(http2_connections(server))).calls


async def test_a_call_with_two_requests_is_done_once(server: StoreServer) -> None:
    raw = await Raw.connect(server)
    one, two = (message(rpc_pb2.PutRequest(key=key)) for key in (b"one", b"two"))
    raw.writer.write(opening(PUT, 1) + frame(DATA, 0, 1, one + two) + frame(DATA, END_STREAM, 1, two))
    assert (await status_of(raw, 1))[0] == 0
    assert await count(server) == 1


async def test_messages_in_any_cut(server: StoreServer) -> None:
    """One message over many frames, many in one: a stream of watches, byte by byte and then all together."""
    requests = b"".join(
        message(rpc_pb2.WatchRequest(create_request=rpc_pb2.WatchCreateRequest(key=b"key-%d" % number)))
        for number in range(5)
    )
    raw = await Raw.connect(server)
    raw.writer.write(opening(WATCH, 1))
    for byte in requests:
        raw.writer.write(frame(DATA, 0, 1, bytes((byte,))))
    raw.writer.write(frame(DATA, 0, 1, requests))
    ids: list[int] = []
    while len(ids) < 10:
        _, _, data = await raw.until(DATA)
        while data:
            length = int.from_bytes(data[1:5], "big")
            ids.append(rpc_pb2.WatchResponse.FromString(data[5 : 5 + length]).watch_id)
            data = data[5 + length :]
    assert ids == list(range(10))


@pytest.mark.parametrize(
    "broken",
    [
        frame(PING, 0, 0, bytes(9)),
        frame(PING, 0, 1, bytes(8)),
        frame(SETTINGS, 0, 0, bytes(5)),
        frame(SETTINGS, 0, 1),
        frame(RST_STREAM, 0, 1, bytes(3)),
        frame(HEADERS, END_HEADERS, 1, b"\x00\x01a" + b"\x7f\x81\x80\x04" + bytes(65_536)),  # more than 64 KiB in one
        frame(HEADERS, END_HEADERS, 1, b"\x00\x01a\x84\xff\xff\xff\xff"),  # no Huffman code
        frame(CONTINUATION, END_HEADERS, 1, b"\x82"),
    ],
)
async def test_a_broken_protocol_is_answered_with_goaway(server: StoreServer, broken: bytes) -> None:
    raw = await Raw.connect(server)
    raw.writer.write(broken)
    await raw.until(GOAWAY)
    assert await raw.closed()


async def test_headers_after_the_end_of_a_call_are_ignored(server: StoreServer) -> None:
    """A refused call's client may have trailers under way."""
    raw = await Raw.connect(server)
    raw.writer.write(
        opening("/no/such", 1) + frame(HEADERS, END_HEADERS | END_STREAM, 1, Encoder().encode([("a", "b")]))
    )
    assert (await status_of(raw, 1))[0] == 12
    raw.writer.write(asking(RANGE, 3, rpc_pb2.RangeRequest(key=b"a")))
    assert (await status_of(raw, 3))[0] == 0


def test_what_huffman_codes_meant_is_remembered_within_bounds() -> None:
    reader = HeaderReader()
    encoder = Encoder()
    for number in range(300):
        text = f"{number:05}" * 800
        reader.read(encoder.encode([("x", text)], huffman=True))
    assert sum(len(raw) + len(text) for raw, text in reader._texts.items()) < MIB // 4
    with pytest.raises(ProtocolBroken):
        reader.read(b"\x00\x01a\x84\xff\xff\xff\xff")


async def test_a_client_that_ignores_its_window_is_cut_off(server: StoreServer) -> None:
    raw = await Raw.connect(server)
    raw.writer.write(opening("/etcdserverpb.Lease/LeaseKeepAlive", 1))
    # The answers are not taken (window 0), so the requests are not either, and their window is not opened again.
    raw.writer.write(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
    renewal = message(rpc_pb2.LeaseKeepAliveRequest(ID=1))
    many = renewal * (MIB // 2 // len(renewal))
    for _ in range(100):
        raw.writer.write(frame(DATA, 0, 1, many))
    await raw.until(GOAWAY)
    raw.writer.close()


async def test_unfinished_requests_of_a_connection_are_bounded(server: StoreServer) -> None:
    raw = await Raw.connect(server)
    unfinished = struct.pack(">BI", 0, 2 * MIB - MIB // 4) + bytes(MIB - 100)
    ended = 0
    for number in range(100):
        raw.writer.write(opening(PUT, 2 * number + 1) + frame(DATA, 0, 2 * number + 1, unfinished))
        await raw.writer.drain()
    while ended < 30:
        flags, _, block = await raw.until(HEADERS)
        if flags & END_STREAM:
            assert dict(raw.headers.read(block))[b"grpc-status"] == b"8"
            ended += 1
    (connection,) = http2_connections(server)
    assert connection.burden.buffered_bytes <= Burden.REQUESTS_BYTES_MAX + MIB


async def test_a_client_that_floods_pings_without_reading_is_not_read(server: StoreServer) -> None:
    raw = await Raw.connect(server)
    await raw.until(SETTINGS)
    (connection,) = http2_connections(server)
    transport = connection._transport
    assert transport is not None
    flood = frame(PING, 0, 0, bytes(8)) * 50_000
    writing = asyncio.ensure_future(send(raw, flood, 60))
    await until(lambda: connection.paused or writing.done())
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert transport.get_write_buffer_size() < 4 * MIB
    assert not writing.done()
    writing.cancel()
    raw.writer.transport.abort()


async def send(raw: Raw, data: bytes, times: int) -> None:
    for _ in range(times):
        raw.writer.write(data)
        await raw.writer.drain()


async def test_large_answers_that_are_not_taken_hold_up_their_own_client_only(server: StoreServer) -> None:
    async with await leasehold.connect(server.url) as client:
        for number in range(8):
            await client.put(b"%d" % number, bytes(MIB))
        raw = await Raw.connect(server, struct.pack(">HI", 4, 0))
        for number in range(12):
            raw.writer.write(asking(RANGE, 2 * number + 1, rpc_pb2.RangeRequest(key=b"\0", range_end=b"\0")))
        await raw.writer.drain()
        await until(lambda: any(len(connection.calls) == 12 for connection in http2_connections(server)))
        held = [connection.burden.held_bytes for connection in http2_connections(server)]
        assert max(held) <= Burden.HELD_BYTES_MAX + 9 * MIB
        assert (await client.get(b"\0", b"\0", count_only=True)).count == 8
        # When it takes them, all of them come.
        raw.writer.write(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 64 * MIB)))
        done = 0
        while done < 12:
            kind, flags, _, payload = await raw.frame()
            if kind == DATA:
                raw.writer.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
            done += kind == HEADERS and bool(flags & END_STREAM)
        assert all(connection.burden.held_bytes == 0 for connection in http2_connections(server))
        raw.writer.close()


async def test_rapid_resets_end_the_connection(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "RESETS_PER_S", 0)  # on a busy machine what is let pass a second may be all of them
    raw = await Raw.connect(server)
    await raw.until(SETTINGS)
    block = Encoder().encode([(":path", WATCH)], huffman=False)
    calls = b"".join(
        frame(HEADERS, END_HEADERS, stream, block) + frame(RST_STREAM, 0, stream, bytes(4))
        for stream in range(1, 2 * http2.RESETS_MAX + 3_000, 2)
    )
    raw.writer.write(calls)
    _, _, payload = await raw.until(GOAWAY)
    assert struct.unpack(">II", payload[:8])[1] == 11  # ENHANCE_YOUR_CALM
    assert await count(server) == 0


async def test_a_deadline_ends_a_call_that_waits(server: StoreServer) -> None:
    """Also of a client that has gone without a word."""
    raw = await Raw.connect(server)
    raw.writer.write(asking("/v3lockpb.Lock/Lock", 1, lock_pb2.LockRequest(name=b"l")))
    assert (await status_of(raw, 1))[0] == 0
    waiting = opening("/v3lockpb.Lock/Lock", 3, ("grpc-timeout", "200m"))
    raw.writer.write(waiting + frame(DATA, END_STREAM, 3, message(lock_pb2.LockRequest(name=b"l"))))
    assert await status_of(raw, 3) == (4, "context deadline exceeded")
    await until(lambda: not next(iter(http2_connections(server))).calls)
    assert await count(server) == 1  # its key in the queue was deleted


async def test_a_failed_disk_fails_every_call(tmp_path: Path) -> None:
    engine = open_folder(tmp_path)
    server = StoreServer(engine, "127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(server.address) as channel:
            put: Any = channel.unary_unary(PUT)
            request = rpc_pb2.PutRequest(key=b"a").SerializeToString()
            await put(request, timeout=60)
            os.close(engine._log._segment._file)  # type: ignore[union-attr]  # the disk goes away
            for _ in range(3):
                with pytest.raises(grpc.aio.AioRpcError, match="the disk failed") as failed:
                    await put(request, timeout=60)
                assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        await server.stop(0)


async def test_progress_requests_after_a_long_backlog_are_bounded(server: StoreServer) -> None:
    """A client with a window of 0 and a request for progress does not have the whole history copied for it."""
    async with await leasehold.connect(server.url) as client:
        for _ in range(100):
            await client.put(b"a", bytes(MIB // 4))
        raw = await Raw.connect(server, struct.pack(">HI", 4, 0))
        create = rpc_pb2.WatchCreateRequest(key=b"a", start_revision=2)
        requests = [rpc_pb2.WatchRequest(create_request=create) for _ in range(4)]
        requests.append(rpc_pb2.WatchRequest(progress_request=rpc_pb2.WatchProgressRequest()))
        raw.writer.write(opening(WATCH, 1) + b"".join(frame(DATA, 0, 1, message(each)) for each in requests))
        await until(lambda: any(connection.burden.held_bytes > MIB for connection in http2_connections(server)))
        for _ in range(10):
            await asyncio.sleep(0.01)
            await client.put(b"b")
        assert max(connection.burden.held_bytes for connection in http2_connections(server)) < 16 * MIB
        raw.writer.write(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1)))
        received, events = b"", 0
        async with asyncio.timeout(110):
            while True:
                _, _, data = await raw.until(DATA)
                raw.writer.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(data))))
                received += data
                while len(received) >= 5 and len(received) >= 5 + int.from_bytes(received[1:5], "big"):
                    length = int.from_bytes(received[1:5], "big")
                    answer = rpc_pb2.WatchResponse.FromString(received[5 : 5 + length])
                    received = received[5 + length :]
                    events += len(answer.events)
                    if answer.watch_id == -1:
                        assert events == 400  # progress is sent after everything that it covers
                        raw.writer.close()
                        return


async def test_requests_whose_answers_are_not_taken_wait(server: StoreServer) -> None:
    """A stream of requests for watches that reads nothing: bounded in what it may ask for."""
    raw = await Raw.connect(server, struct.pack(">HI", 4, 0))
    create = message(rpc_pb2.WatchRequest(create_request=rpc_pb2.WatchCreateRequest(key=b"a")))
    raw.writer.write(opening(WATCH, 1))
    for _ in range(20):
        raw.writer.write(frame(DATA, 0, 1, create * 2_000))
    await until(lambda: any(connection.calls for connection in http2_connections(server)))
    for _ in range(20):
        await asyncio.sleep(0.01)
    hub = server._engine.store._hub
    assert len(hub._by_key.get(b"a", ())) < 30_000
    raw.writer.close()
