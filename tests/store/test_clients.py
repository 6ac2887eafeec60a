"""The bounds on all clients of the served store together: connections, silence, memory, and the reserve for probes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import grpc
import pytest
from tests.store.raw_http2 import Raw, http2_connections, opening

from leasehold.etcd.pb import health_pb2, rpc_pb2
from leasehold.http2.frames import ACK, DATA, END_STREAM, HEADERS, PING, SETTINGS, frame
from leasehold.store.opening import open_memory
from leasehold.store.server import clients
from leasehold.store.server.serve import StoreServer
from leasehold.store.settings import StoreSettings
from leasehold.testing.grpc_stubs import health_pb2_grpc, rpc_pb2_grpc
from leasehold.testing.waiting import until

MIB = 1 << 20
PUT = "/etcdserverpb.KV/Put"


@asynccontextmanager
async def serving(**settings: int) -> AsyncIterator[StoreServer]:
    engine = open_memory(StoreSettings(**settings))  # type: ignore[arg-type]  # all of them are numbers
    server = StoreServer(engine, "127.0.0.1:0")
    await server.start()
    yield server
    await server.stop(0.1)
    engine.close()


async def test_a_crowd_leaves_room_for_probes() -> None:
    async with serving(connections_max=3) as server:
        crowd = [await Raw.connect(server) for _ in range(3)]
        async with grpc.aio.insecure_channel(server.address) as channel:
            stubs: Any = (rpc_pb2_grpc.KVStub, health_pb2_grpc.HealthStub)
            kv, health = (stub(channel) for stub in stubs)
            with pytest.raises(grpc.aio.AioRpcError, match="3 connections, its limit") as refused:
                await kv.Put(rpc_pb2.PutRequest(key=b"a"))
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE  # so clients try again
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
        async with aiohttp.ClientSession(f"http://{server.address}") as http:
            async with http.get("/health") as answer:
                assert answer.status == 200
            async with http.get("/metrics") as answer:
                assert "\nleasehold_store_connections_max 3\n" in await answer.text()
            async with http.post("/v3/kv/put", data=b'{"key":"YQ=="}') as answer:
                assert answer.status == 503
        for one in crowd:
            one.writer.close()
        await until(lambda: not len(server._clients))
        http = aiohttp.ClientSession(f"http://{server.address}")
        async with http, http.post("/v3/kv/put", data=b'{"key":"YQ=="}') as answer:
            assert answer.status == 200


async def test_connections_beyond_the_reserve_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PROBES_MAX", 2)
    async with serving(connections_max=3) as server:
        crowd = [await Raw.connect(server) for _ in range(5)]
        reader, writer = await asyncio.open_connection(*server.address.split(":"))
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                assert await reader.read(-1) == b""
        assert server._clients.refused == 1
        assert len(server._clients) == 5
        for one in [*crowd, Raw(reader, writer)]:
            one.writer.close()


async def test_a_probe_may_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.store.server.front.PROBE_S", 0.05)
    async with serving(connections_max=1) as server:
        one = await Raw.connect(server)
        assert await (await Raw.connect(server)).closed()
        assert len(server._clients) == 1
        one.writer.close()


async def test_a_silent_client_gets_a_ping_and_is_then_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SWEEP_S", 0.02)
    monkeypatch.setattr("leasehold.store.server.http2.connection.PING_S", 0.3)
    async with serving(connection_silent_ms=100) as server:
        live, dead = await Raw.connect(server), await Raw.connect(server)

        async def answering() -> None:
            while True:
                flags, _, payload = await live.until(PING)
                if not flags & ACK:
                    live.writer.write(frame(PING, ACK, 0, payload))

        answers = asyncio.ensure_future(answering())
        assert await dead.closed()
        assert len(http2_connections(server)) == 1
        answers.cancel()
        live.writer.close()


async def test_among_many_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SWEEP_S", 0.02)
    monkeypatch.setattr(clients, "CROWDED_IDLE_S", 0.1)
    async with serving(connections_max=2) as server:
        watching, idle = await Raw.connect(server), await Raw.connect(server)
        watching.writer.write(opening("/etcdserverpb.Watch/Watch", 1))
        assert await idle.closed()
        assert len(http2_connections(server)) == 1
        watching.writer.close()


async def test_unfinished_requests_of_all_connections_are_bounded() -> None:
    async with serving(traffic_bytes=2 * MIB) as server:
        raws = [await Raw.connect(server) for _ in range(12)]
        for raw in raws:
            raw.writer.write(opening(PUT, 1) + frame(DATA, 0, 1, struct.pack(">BI", 0, MIB)))
            raw.writer.write(frame(DATA, 0, 1, bytes(512 * 1024)))
            await raw.writer.drain()
        refused = 0
        await until(lambda: sum(len(one.calls) for one in http2_connections(server)) < 6)
        for raw in raws:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    flags, _, block = await raw.until(HEADERS)
                    assert flags & END_STREAM
                    refused += dict(raw.headers.read(block))[b"grpc-status"] == b"8"
        assert refused >= 7
        assert server._clients.memory.taken_bytes <= 3 * MIB
        for raw in raws:
            raw.writer.transport.abort()
        await until(lambda: server._clients.memory.taken_bytes == 0)


async def test_bodies_of_all_connections_are_bounded() -> None:
    async with serving(traffic_bytes=MIB) as server:
        head = b"POST /v3/kv/put HTTP/1.1\r\nHost: 1.1.1.1\r\nContent-Length: 3000000\r\n\r\n"
        streams = [await asyncio.open_connection(*server.address.split(":")) for _ in range(8)]
        for _, writer in streams:
            writer.write(head + b" " * 400_000)
        answers = [asyncio.ensure_future(reader.readline()) for reader, _ in streams]
        await until(lambda: sum(one.done() for one in answers) >= 4)
        assert all(one.result().startswith(b"HTTP/1.1 503") for one in answers if one.done())
        await asyncio.sleep(0.1)
        assert server._clients.memory.taken_bytes <= 2 * MIB
        for one, (_, writer) in zip(answers, streams, strict=True):
            one.cancel()
            writer.transport.abort()
        await until(lambda: server._clients.memory.taken_bytes == 0)


async def test_frames_settings_are_unchanged_by_the_front(server: StoreServer) -> None:
    """The server's SETTINGS come first, once the client has sent its preface."""
    raw = await Raw.connect(server)
    kind, _, _, _ = await raw.frame()
    assert kind == SETTINGS
    raw.writer.close()
