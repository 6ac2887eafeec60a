"""The admin port, as used by probes, operators and unrelated clients. The node behind it is a stub."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import msgspec
import pytest
import uvloop
from tests.admin.stub_mooncake import StubMooncake

from leasehold.admin import bounds
from leasehold.admin.access import COMMAND_HEADER, Order
from leasehold.admin.live import LiveNode
from leasehold.admin.samples import Sample
from leasehold.admin.server import BODY_BYTES_MAX, LARGE_ANSWERS_MAX, AdminServer
from leasehold.admin.status import ClusterStatus, HistoryLine, NodeStatus, Operated
from leasehold.base.errors import Unavailable
from leasehold.base.measures import Measure
from leasehold.testing.waiting import until

STATUS = NodeStatus(name="a", run="r", cluster="c", version="1", role="standby", reason="", may_serve=False, ready=True)


@dataclass
class StubNode:
    """A node with a given status."""

    now: NodeStatus = STATUS
    large: bytes = b"index"
    story: list[str] = field(default_factory=list)  # orders as recorded and as carried out
    store_is_away: bool = False

    def status(self) -> NodeStatus:
        return self.now

    def measures(self) -> list[Measure]:
        return [Measure.counter("leasehold_worker_restarts", "restarts", 2)]

    def peers(self) -> list[str]:
        return ["10.0.0.11:8700", "10.0.0.12:8700", "127.0.0.1:8701"]

    def live(self) -> LiveNode:
        return LiveNode(wall_ms=1, status=self.now, lease_ms=3_000)

    def samples(self) -> list[Sample]:
        return []

    def moment(self) -> object:
        return self.now.role

    async def cluster(self) -> ClusterStatus:
        raise Unavailable("the store does not answer")

    async def history(self, limit: int) -> list[HistoryLine]:
        return [HistoryLine(0, "a", limit, "standby", "")]

    async def record_order(self, order: Order) -> None:
        if self.store_is_away:
            raise Unavailable("the store does not answer")
        self.story.append(f"recorded {order}")

    async def switchover(self, target: str) -> Operated:
        return Operated(False, f"not to {target}")

    async def force(self) -> Operated:
        return Operated(True, "")

    async def switch_level(self, level: str) -> Operated:
        return Operated(False, f"not to level {level}")

    async def pause(self, reason: str) -> Operated:
        self.story.append(f"paused: {reason}")
        return Operated(True, reason)

    async def resume(self) -> Operated:
        return Operated(True, "")

    async def export(self) -> bytes:
        return self.large

    async def snapshot(self) -> bytes | None:
        return None


class Port:
    def __init__(self, node: StubNode, session: aiohttp.ClientSession, address: tuple[str, int]) -> None:
        self.node = node
        self.session = session
        self.address = address
        self.url = f"http://{address[0]}:{address[1]}"

    async def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, object]]:
        """Header names have underscores here instead of dashes."""
        sent = {COMMAND_HEADER: "1"} if method == "POST" else {}
        sent.update((name.replace("_", "-"), value) for name, value in headers.items())
        async with self.session.request(method, self.url + path, data=body, headers=sent) as answer:
            raw = await answer.read()
            return answer.status, json.loads(raw) if raw.startswith(b"{") else {}

    async def raw(self, sent: bytes) -> bytes:
        """Send bytes, and return everything received until the server closes."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(sent)
        try:
            return await asyncio.wait_for(reader.read(), 60)
        finally:
            writer.close()


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    sock = socket.create_server(("127.0.0.1", 0))
    node = StubNode()
    server = AdminServer(node, StubMooncake(), sock)
    address = sock.getsockname()
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Port(node, session, address)
    await server.close()


@pytest.mark.parametrize(
    ("role", "may_serve", "ready", "codes"),
    [
        ("primary", True, True, {"/health": 200, "/ready": 200, "/primary": 200, "/standby": 503}),
        ("standby", False, True, {"/health": 200, "/ready": 200, "/primary": 503, "/standby": 200}),
        ("catching up", False, False, {"/health": 200, "/ready": 503, "/primary": 503, "/standby": 503}),
        ("promoting", False, True, {"/health": 200, "/ready": 200, "/primary": 503, "/standby": 200}),
        # a former leader whose leader lease has expired: not ready, even before another node leads
        ("primary", False, False, {"/health": 200, "/ready": 503, "/primary": 503, "/standby": 503}),
    ],
)
async def test_probes_answer_with_the_status_code(
    role: str, may_serve: bool, ready: bool, codes: dict[str, int], port: Port
) -> None:
    port.node.now = msgspec.structs.replace(STATUS, role=role, may_serve=may_serve, ready=ready)
    for path, code in codes.items():
        assert (await port.ask("GET", path))[0] == code, path
        assert (await port.ask("HEAD", path))[0] == code, path


async def test_invalid_requests(port: Port) -> None:
    status, body = await port.ask("GET", "/nowhere")
    assert status == 404
    assert "/api/status" in str(body["paths"])
    assert (await port.ask("GET", "/api/../../etc/passwd"))[0] == 404
    assert (await port.ask("GET", "/%00%ff"))[0] == 404
    assert await port.ask("GET", "/api/switchover") == (405, {"error": "/api/switchover accepts POST"})
    assert (await port.ask("POST", "/api/status"))[0] == 405
    assert (await port.ask("DELETE", "/metrics"))[0] == 405
    assert (await port.ask("GET", "/api/history?limit=many"))[0] == 400
    status, body = await port.ask("POST", "/api/pause", b'["no object"]')
    assert (status, "the body must be a JSON object of strings" in str(body["error"])) == (400, True)
    assert (await port.ask("POST", "/api/pause", b"x" * (BODY_BYTES_MAX + 1)))[0] == 413
    assert await port.ask("GET", "/api/cluster") == (503, {"error": "the store does not answer"})
    assert (await port.ask("POST", "/api/switchover", b'{"target": "b"}'))[0] == 409


async def test_the_number_of_large_responses_is_limited(port: Port) -> None:
    """Each snapshot stays in memory until its client has read it, however slow that client is."""
    port.node.large = bytes(64 << 20)
    ask = b"GET /api/export HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    talks = [await asyncio.open_connection(*port.address, limit=1024) for _ in range(LARGE_ANSWERS_MAX)]
    for _, writer in talks:
        writer.write(ask)
    for reader, _ in talks:
        assert b"200 OK" in await reader.readline()
    status, body = await port.ask("GET", "/api/export")
    assert (status, "are being sent" in str(body["error"])) == (503, True)
    for _, writer in talks:
        writer.close()
    for _ in range(600):  # until the server notices that they are closed
        if (await port.ask("HEAD", "/api/export"))[0] == 200:
            break
        await asyncio.sleep(0.05)
    async with port.session.get(port.url + "/api/export") as answer:
        assert await answer.read() == port.node.large


async def test_malformed_http(port: Port) -> None:
    assert (await port.raw(b"\x16\x03\x01 hello\r\n\r\n")).startswith(b"HTTP/1.0 400")
    assert b" 400 " in await port.raw(b"GET /health HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
    assert b" 400 " in await port.raw(b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n")
    assert (await port.ask("GET", "/health"))[0] == 200


async def test_slow_idle_and_silent_connections_are_closed(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sends its request byte by byte, one stays open after its request, one sends nothing."""
    monkeypatch.setattr(bounds, "REQUEST_TIMEOUT_MS", 300)
    monkeypatch.setattr(bounds, "IDLE_TIMEOUT_MS", 300)
    talks = [await asyncio.open_connection(*port.address) for _ in range(3)]
    talks[1][1].write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    over = [asyncio.ensure_future(reader.read()) for reader, _ in talks]
    for byte in b"GET /health HTTP/1.1\r\nX-Slow: " + b"x" * 1000:
        if over[0].done():
            break
        talks[0][1].write(bytes((byte,)))
        await asyncio.sleep(0.05)
    slow, idle, silent = await asyncio.wait_for(asyncio.gather(*over, return_exceptions=True), 60)
    assert isinstance(slow, ConnectionError) or slow == b""
    assert isinstance(idle, ConnectionError) or (isinstance(idle, bytes) and b"200 OK" in idle)
    assert isinstance(silent, ConnectionError) or silent == b""
    for _, writer in talks:
        writer.close()


async def test_idle_connections_do_not_keep_probes_out(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 idle connections made /ready answer 503. Now the one that was idle for longest makes room."""
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", 8)
    talks = [await asyncio.open_connection(*port.address) for _ in range(40)]
    for _ in range(3):
        raw = await port.raw(b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert raw.startswith(b"HTTP/1.1 200 OK")
    ended = [asyncio.ensure_future(reader.read()) for reader, _ in talks]
    await until(lambda: sum(each.done() for each in ended) >= 32, "the oldest were closed")
    for each, (_, writer) in zip(ended, talks, strict=True):
        writer.close()
        each.cancel()
    await asyncio.gather(*ended, return_exceptions=True)


def test_idle_connections_make_room_on_uvloop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run on uvloop, whose transports do not derive from asyncio's."""
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", 8)

    async def run() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        address = sock.getsockname()
        server = AdminServer(StubNode(), StubMooncake(), sock)
        await server.start()
        talks = [await asyncio.open_connection(*address) for _ in range(40)]
        ended = [asyncio.ensure_future(reader.read()) for reader, _ in talks]
        await until(lambda: sum(each.done() for each in ended) >= 32, "the oldest were closed")
        for each, (_, writer) in zip(ended, talks, strict=True):
            writer.close()
            each.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        await server.close()

    uvloop.run(run())


async def test_the_number_of_connections_is_limited(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are being served are not closed for a new one."""
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", LARGE_ANSWERS_MAX)
    port.node.large = bytes(64 << 20)
    talks = [await asyncio.open_connection(*port.address, limit=1024) for _ in range(LARGE_ANSWERS_MAX)]
    for reader, writer in talks:
        writer.write(b"GET /api/export HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in await reader.readline()
    assert (await port.raw(b"")).startswith(b"HTTP/1.1 503 Service Unavailable")
    for _, writer in talks:
        writer.close()

    async def answered() -> bool:
        try:
            return (await port.ask("GET", "/health"))[0] == 200
        except aiohttp.ClientError:
            return False

    await until(answered, "the port answers again when the connections are closed")
