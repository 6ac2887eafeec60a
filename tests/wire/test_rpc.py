"""Functions of our own over a real socket: typed, in any order, with attachments, pushes, errors, bounds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import Struct

from leasehold.base.errors import InvalidArgument, Unavailable
from leasehold.testing.waiting import until
from leasehold.wire.answers import AlwaysServes, Released, ServePermit
from leasehold.wire.channel import Channel, open_channel
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.derive import wire_type
from leasehold.wire.errors import CallLost, RpcRefused
from leasehold.wire.frame import PUSH, function_id, request, response
from leasehold.wire.rpc import Reply, implement, method
from leasehold.wire.server import Server, listen
from leasehold.wire.settings import WireSettings

HANG_MS = 60_000  # a bound for what would never come, and no measure


class Point(Struct, frozen=True):
    x: int
    y: float


class Circle(Struct, frozen=True):
    radius: int


class Ask(Struct, frozen=True):
    text: str
    raw: bytes = b""
    points: list[Point] = []
    names: dict[str, int] = {}
    maybe: int | None = None
    shape: Point | Circle | None = None


class Echoed(Struct, frozen=True):
    ask: Ask
    attached: int = 0


ECHO = method("leasehold::test::Echo", Ask, Echoed)
SLOW = method("leasehold::test::Slow", Ask, Echoed)
FAIL = method("leasehold::test::Fail", Ask, Ask)
NEWS = function_id("leasehold::test::News")


def echo(connection: Connection, ask: Ask) -> Reply[Echoed]:
    return Reply(Echoed(ask, len(connection.attachment)), connection.attachment[::-1])


PERMITTED: dict[str, asyncio.Event] = {}


async def slow(_: Connection, ask: Ask) -> Echoed:
    """Answers when the test permits it."""
    await PERMITTED.setdefault(ask.text, asyncio.Event()).wait()
    return Echoed(ask)


def fail(connection: Connection, ask: Ask) -> Ask:
    connection.sender.send_later(Released(response(NEWS, ask.text.encode(), kind=PUSH)))
    raise InvalidArgument("never")


@asynccontextmanager
async def serving(
    settings: WireSettings | None = None, permit: ServePermit | None = None
) -> AsyncIterator[tuple[Server, Channel]]:
    handlers: dict[int, Handler] = {**implement(ECHO, echo), **implement(SLOW, slow), **implement(FAIL, fail)}
    PERMITTED.clear()
    server = Server(permit, settings)
    listener = server.serve(listen("127.0.0.1", 0), handlers)
    channel = await open_channel(*listener.address, timeout_ms=HANG_MS)
    try:
        yield server, channel
    finally:
        channel.close()
        server.close()


async def test_every_kind_of_value_comes_back() -> None:
    ask = Ask("ü", b"\xff\x00", [Point(-1, 0.5)], {"a": 2**62}, 0, Circle(3))
    async with serving() as (_, channel):
        assert (await channel.call(ECHO, ask, timeout_ms=HANG_MS)).ask == ask
        answer, attached = await channel.exchange(
            ECHO, Ask("x" * 70_000), timeout_ms=HANG_MS, attachment=b"ab" * 200_000
        )
        assert (answer.attached, attached[:2]) == (400_000, b"ba")


async def test_large_buffers_are_given_up_when_they_are_no_longer_needed() -> None:
    async with serving() as (server, channel):
        for _ in range(3):
            _, attached = await channel.exchange(ECHO, Ask(""), timeout_ms=HANG_MS, attachment=b"x" * 2_000_000)
            assert len(attached) == 2_000_000
        await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)
        await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)
        (connection,) = server.connections
        assert connection.recv_bytes == 64 * 1024


async def test_a_caller_waits_while_the_peer_takes_nothing() -> None:
    async with serving() as (server, channel):
        (connection,) = server.connections
        server.loop.remove_reader(connection.fileno())
        flood = [asyncio.create_task(channel.call(ECHO, Ask(""), timeout_ms=3000, attachment=b"x" * 8_000_000))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises((Unavailable, CallLost)):
            await channel.call(ECHO, Ask(""), timeout_ms=300)
        server.drop_all("test")
        with pytest.raises(CallLost):
            await flood[0]


async def test_answers_leave_when_they_are_ready() -> None:
    async with serving() as (_, channel):
        order: list[str] = []

        async def ask(text: str) -> None:
            order.append((await channel.call(SLOW, Ask(text), timeout_ms=HANG_MS)).ask.text)

        asking = [asyncio.create_task(ask(text)) for text in ("first", "second", "third")]
        await until(lambda: len(PERMITTED) == 3, "all have arrived")
        for count, text in enumerate(("third", "second", "first"), start=1):
            PERMITTED[text].set()
            await until(lambda count=count: len(order) == count, "it is answered")  # type: ignore[misc] # early binding
        assert order == ["third", "second", "first"]
        await asyncio.gather(*asking)


async def test_errors_are_named_and_pushes_arrive() -> None:
    async with serving() as (_, channel):
        news: list[bytes] = []
        channel.on_push(NEWS, news.append)
        with pytest.raises(RpcRefused, match="InvalidArgument: never"):
            await channel.call(FAIL, Ask("news"), timeout_ms=HANG_MS)
        async with asyncio.timeout(HANG_MS / 1000):
            while not news:  # the push leaves at the end of the server's turn
                await channel.call(ECHO, Ask("x"), timeout_ms=HANG_MS)
        assert news == [b"news"]


async def test_a_deadline_and_a_lost_connection_are_unknown_outcomes_but_not_sent_is_not() -> None:
    async with serving() as (server, channel):
        with pytest.raises(CallLost, match="50 ms"):
            await channel.call(SLOW, Ask("never"), timeout_ms=50)
        pending = asyncio.create_task(channel.call(SLOW, Ask("never"), timeout_ms=HANG_MS))
        await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)
        server.drop_all("test")
        with pytest.raises(CallLost):
            await pending
        with pytest.raises(Unavailable):
            await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)


class Tide:
    """A permit that the test withdraws."""

    open = True

    def may_serve(self, now_ms: int) -> bool:
        return self.open


async def test_without_the_leader_lease_nothing_is_answered() -> None:
    tide = Tide()
    async with serving(permit=tide) as (_, channel):
        await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)
        pending = asyncio.create_task(channel.call(SLOW, Ask("late"), timeout_ms=HANG_MS))
        await until(lambda: "late" in PERMITTED, "it has arrived")
        tide.open = False
        PERMITTED["late"].set()
        with pytest.raises(CallLost):
            await pending


def quick(**changed: int) -> WireSettings:
    return WireSettings(**changed)


async def closes(sock: socket.socket, within_s: float = HANG_MS / 1000) -> bool:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(within_s):
        try:
            while await loop.sock_recv(sock, 65536):
                pass
        except ConnectionResetError:
            pass
    return True


async def dial(server: Server) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, server.listeners[0].address)
    return sock


async def test_idle_half_sent_and_surplus_connections_end() -> None:
    settings = quick(idle_ms=1000, half_frame_ms=100, connections_max=3)
    async with serving(settings) as (server, _):
        idle, half, surplus = [await dial(server) for _ in range(3)]
        assert await closes(surplus)
        assert server.turned_away == 1
        await asyncio.get_running_loop().sock_sendall(half, request(1, ECHO.id, b"x" * 100)[:50])
        assert await closes(half)
        assert await closes(idle)
        for sock in (idle, half, surplus):
            sock.close()
    assert server.buffered_bytes == 0


async def test_a_reader_that_takes_nothing_holds_a_bounded_amount_and_is_dropped() -> None:
    settings = quick(unsent_bytes=256 * 1024, slow_reader_ms=600)
    async with serving(settings) as (server, _):
        sock = await dial(server)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        frame = request(1, ECHO.id, ECHO.pack_request(Ask("")), b"x" * 30_000)
        peak = 0

        async def flood() -> None:
            nonlocal peak
            while True:
                await asyncio.get_running_loop().sock_sendall(sock, frame)
                peak = max(peak, server.buffered_bytes)

        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await asyncio.wait_for(flood(), HANG_MS / 1000)
        sock.close()
        assert peak < 3 * 1024 * 1024
        assert server.buffered_bytes == 0


class ExpiringPermit(AlwaysServes):
    """A leader lease that expires."""

    holds = True

    def may_serve(self, now_ms: int) -> bool:
        return self.holds


async def read_to_reset(sock: socket.socket) -> int:
    """How many bytes came before the reset; an orderly end does not count as one."""
    loop, read_bytes = asyncio.get_running_loop(), 0
    async with asyncio.timeout(HANG_MS / 1000):
        try:
            while data := await loop.sock_recv(sock, 1 << 20):
                read_bytes += len(data)
        except ConnectionResetError:
            return read_bytes
    raise AssertionError("the connection was not reset")


async def test_bytes_kept_for_a_slow_reader_are_not_sent_after_the_lease_has_expired() -> None:
    """A process that was stopped past its lease and continued went on writing what it had kept."""
    permit, count, each_bytes = ExpiringPermit(), 600, 30_000
    async with serving(permit=permit) as (server, _):
        sock = await dial(server)
        frame = request(1, ECHO.id, ECHO.pack_request(Ask("")), b"x" * each_bytes)
        for _ in range(count):
            await asyncio.get_running_loop().sock_sendall(sock, frame)
        await until(lambda: server.buffered_bytes > 1_000_000, "answers are kept for it")
        permit.holds = False
        assert await read_to_reset(sock) < (count - 1) * each_bytes, "the kept bytes were dropped"
        sock.close()
        assert server.buffered_bytes == 0


async def test_a_frame_over_the_bound_is_refused_and_ends_its_connection() -> None:
    async with serving(quick(frame_bytes=1024)) as (server, channel):
        with pytest.raises(RpcRefused, match="larger"):
            await channel.call(ECHO, Ask("x" * 5000), timeout_ms=HANG_MS)
        assert server.listeners[0].refusals["too large"] == 1


def test_what_has_no_type_on_the_wire_is_refused_where_it_is_declared() -> None:
    with pytest.raises(InvalidArgument, match="no type on the wire"):
        wire_type(set[int])
