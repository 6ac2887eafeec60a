"""Floods: what costs a client of the served store little must not cost the store much."""

from __future__ import annotations

import asyncio
import struct
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.store.raw_http2 import Raw, asking, http2_connections, opening

import leasehold
from leasehold.etcd.pb import rpc_pb2
from leasehold.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from leasehold.store.server.clients import Burden
from leasehold.store.server.http2 import connection as http2
from leasehold.store.server.http2 import intake
from leasehold.store.server.serve import StoreServer
from leasehold.testing.store import StoreProcess
from leasehold.testing.waiting import until

GET, PUT = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Put"
MIB = 1 << 20


@pytest.mark.parametrize("kind", [WINDOW_UPDATE, SETTINGS], ids=["windows", "settings"])
async def test_a_byte_of_room_for_thousands_of_answers_is_little_work(server: StoreServer, kind: int) -> None:
    """Each one took 7 ms with 9,000 answers that wait: less than two kilobytes a second held up the whole store."""
    async with await leasehold.connect(server.url) as client:
        await client.put(b"a", bytes(1000))
    raw = await Raw.connect(server, struct.pack(">HI", 4, 0))
    streams = range(1, 10_001, 2)
    get = rpc_pb2.RangeRequest(key=b"a")
    for stream in streams:
        raw.writer.write(asking(GET, stream, get))
    reading = asyncio.ensure_future(raw.reader.read(-1))
    (connection,) = http2_connections(server)
    await until(lambda: len(connection.calls) == len(streams))
    cpu_s = time.process_time()
    if kind == WINDOW_UPDATE:
        raw.writer.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 1_000)
        await until(lambda: connection._window >= 65_535 + 1_000)
    else:
        raw.writer.write(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) * (10 * http2.SETTINGS_MAX))
        await reading  # it is closed
    assert time.process_time() - cpu_s < 1.0
    reading.cancel()
    raw.writer.transport.abort()


async def test_windows_of_calls_open_with_the_settings(server: StoreServer) -> None:
    """Answers that waited for their own window go out when settings open it, in however many steps of one frame."""
    async with await leasehold.connect(server.url) as client:
        await client.put(b"a", bytes(1000))
    raw = await Raw.connect(server, struct.pack(">HI", 4, 0))
    for stream in (1, 3, 5):
        raw.writer.write(asking(GET, stream, rpc_pb2.RangeRequest(key=b"a")))
    (connection,) = http2_connections(server)
    await until(lambda: len(connection.calls) == 3 and connection.burden.held_bytes > 3_000)
    raw.writer.write(frame(SETTINGS, 0, 0, struct.pack(">HIHIHI", 4, 70_000, 4, 0, 4, 30_000)))
    async with asyncio.timeout(30):
        while connection.calls:
            await raw.until(DATA)
            await asyncio.sleep(0)
    raw.writer.close()


async def test_tiny_pieces_of_a_request_are_not_kept_as_pieces(server: StoreServer) -> None:
    raw = await Raw.connect(server)
    raw.writer.write(opening(PUT, 1) + frame(DATA, 0, 1, struct.pack(">BI", 0, MIB)))
    await raw.until(SETTINGS)
    tracemalloc.start()
    try:
        raw.writer.write(frame(DATA, 0, 1, b"xy") * 20_000)
        (connection,) = http2_connections(server)
        await until(lambda: connection.burden.buffered_bytes >= 40_000)
        taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/coord/*")])
        assert sum(trace.size for trace in taken.traces) < MIB // 4
    finally:
        tracemalloc.stop()
    raw.writer.transport.abort()


async def test_unread_empty_requests_are_bounded(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Burden, "REQUESTS_BYTES_MAX", 4 * MIB)
    raw = await Raw.connect(server, struct.pack(">HI", 4, 0))  # it takes no answers, so no further requests are taken
    empty = bytes(5) * 50_000
    for stream in range(1, 9, 2):
        raw.writer.write(opening("/etcdserverpb.Lease/LeaseKeepAlive", stream) + frame(DATA, 0, stream, empty))
        await raw.writer.drain()
    while True:
        flags, _, block = await raw.until(HEADERS)
        if flags & END_STREAM:
            break
    assert dict(raw.headers.read(block))[b"grpc-status"] == b"8"
    raw.writer.transport.abort()


async def test_who_never_says_what_it_speaks_is_left(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "PREFACE_S", 0.05)
    reader, writer = await asyncio.open_connection(*server.address.split(":"))
    writer.write(b"PRI * HT")
    with suppress(ConnectionError):
        async with asyncio.timeout(30):
            await reader.read(-1)
    assert not len(server._clients)
    writer.close()


async def test_many_watches_that_are_behind_and_not_read_cost_little() -> None:
    """A batch was made for each of them before the first one was written."""
    watches = 200
    with StoreProcess() as store:
        async with await leasehold.connect(f"etcd://{store.endpoint}") as client:
            for number in range(20):
                await client.put(b"k%d" % number, bytes(50_000))
            before = peak_bytes(store.pid)
            async with grpc.aio.insecure_channel(store.endpoint) as channel:
                call: Any = channel.stream_stream("/etcdserverpb.Watch/Watch")()
                create = rpc_pb2.WatchCreateRequest(key=b"k", range_end=b"l", start_revision=1)
                for _ in range(watches):
                    await call.write(rpc_pb2.WatchRequest(create_request=create).SerializeToString())
                await client.put(b"last", b"")
                created, events = 0, 0
                async with asyncio.timeout(60):
                    while created < watches or events < 20 * watches:
                        answer = rpc_pb2.WatchResponse.FromString(await call.read())
                        created += answer.created
                        events += len(answer.events)
            assert peak_bytes(store.pid) - before < 110 * MIB


@pytest.mark.parametrize(
    "block", [b"\x82" * 60_000, b"\x82" * 8_000, b"\x00\x01x\x7f" + b"x" * 9_000], ids=["60 KB", "8 KB", "one field"]
)
async def test_a_header_block_beyond_its_limits_ends_the_connection(server: StoreServer, block: bytes) -> None:
    """60 blocks of 60 KB, whose fields are one byte each, silenced the store for three seconds."""
    raw = await Raw.connect(server)
    await raw.until(SETTINGS)
    raw.writer.write(frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
    _, _, why = await raw.until(GOAWAY)
    assert struct.unpack(">I", why[4:8]) == (ENHANCE_YOUR_CALM,)
    assert await raw.closed()
    raw.writer.close()


async def test_headers_are_decoded_only_as_fast_as_their_connection_pays(server: StoreServer) -> None:
    """Blocks within the limits, without end: 40,000 of 90 fields are two seconds of work at full speed."""
    raw = await Raw.connect(server)
    raw.writer.write(asking(GET, 1, rpc_pb2.RangeRequest(key=b"a")))
    flood = asyncio.ensure_future(_flood(raw, frame(HEADERS, END_HEADERS, 1, b"\x82" * 90), 40_000))
    (connection,) = http2_connections(server)
    async with await leasehold.connect(server.url) as client:
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        decoded = 0
        count = connection._blocks.take

        def counting(*block: Any) -> Any:
            nonlocal decoded
            decoded += 90
            return count(*block)

        connection._blocks = SimpleNamespace(take=counting, work=91, under_way=False)  # type: ignore[assignment]
        for _ in range(100):
            await client.get(b"a")
        await until(lambda: decoded > 2 * intake.WORK_MAX)
        passed_s = time.perf_counter() - begun_s
        assert decoded <= intake.WORK_MAX + passed_s * intake.WORK_PER_S + 1_000
        assert time.process_time() - cpu_s < passed_s / 2 + 0.5
    flood.cancel()
    raw.writer.transport.abort()


async def _flood(raw: Raw, data: bytes, times: int) -> None:
    with suppress(ConnectionError):
        for _ in range(times):
            raw.writer.write(data)
            await raw.writer.drain()


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
