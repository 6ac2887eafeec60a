"""Load that a fleet of clients can put on a server: storms, floods, slow and greedy peers, bugs behind a wait."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from tests.wire.test_rpc import ECHO, HANG_MS, Ask, Echoed, closes, dial, quick, serving

from leasehold.ha.outbox import FOREVER, Outbox
from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.index.replies import View
from leasehold.index.settings import IndexSettings
from leasehold.testing.waiting import until
from leasehold.wire.answers import Answer, Released
from leasehold.wire.channel import open_channel
from leasehold.wire.connection import Connection
from leasehold.wire.errors import CallLost, RpcRefused
from leasehold.wire.frame import Err, Response, ResponseReader, request, response
from leasehold.wire.rpc import implement, method
from leasehold.wire.server import Server, listen
from leasehold.wire.settings import WireSettings

WAIT = method("leasehold::test::Wait", Ask, Echoed)
HELD = method("leasehold::test::Held", Ask, Echoed)
LONG = method("leasehold::test::Long", Ask, Echoed)
WRONG = method("leasehold::test::Wrong", Ask, Echoed)


class Tide(Serving):
    """Holds every answer until the test releases it."""

    def __init__(self) -> None:
        super().__init__(Index(IndexSettings(), lambda _: 0), Outbox(FOREVER))
        self.outbox.lease_until_ms = FOREVER

    @property
    def waiting(self) -> int:
        return self.outbox.waiting

    def rise(self) -> None:
        self.outbox.durable_n = self.outbox.acked_n = 1
        released = self.outbox.release(0)
        self.outbox.durable_n = self.outbox.acked_n = 0
        for one in released:
            one.owner.release(one)

    def give_up(self) -> None:
        for one in self.outbox.drop_all():
            one.owner.give_up(one)


def tide_of(connection: Connection) -> Tide:
    tide = connection.server.permit
    assert isinstance(tide, Tide)
    return tide


def breaks() -> Answer:
    raise KeyError("a bug behind a wait")


def wait(connection: Connection, seq: int, _: bytes) -> Answer:
    return tide_of(connection).resume_after(1, breaks)


def held(connection: Connection, seq: int, _: bytes) -> Answer:
    return tide_of(connection).answer(View(None, 1), response(seq, b"x" * 100_000))


def waits_long(connection: Connection, seq: int, body: bytes) -> Answer:
    return tide_of(connection).resume_after(1, lambda: Released(response(seq, body)), len(body))


async def wrong(_: Connection, ask: Ask) -> Echoed:
    await asyncio.sleep(0)
    return Echoed(ask, attached=1 << 70)  # does not fit its type on the wire


@asynccontextmanager
async def behind(gate: Tide, settings: WireSettings | None = None) -> AsyncIterator[Server]:
    server = Server(gate, settings)
    server.serve(listen("127.0.0.1", 0), {WAIT.id: wait, HELD.id: held, LONG.id: waits_long, **implement(WRONG, wrong)})
    try:
        yield server
    finally:
        server.close()


async def test_a_stream_that_is_never_between_two_requests_is_not_half_open() -> None:
    """A client that always has a request half under way was dropped after `half_frame_ms`, however much it got done."""
    async with serving(quick(half_frame_ms=1_500)) as (server, _):
        sock = await dial(server)
        frame = request(1, ECHO.id, ECHO.pack_request(Ask("x" * 1000)))
        half = len(frame) // 2
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, frame[:half])
        for _ in range(18):
            await asyncio.sleep(0.1)
            await loop.sock_sendall(sock, frame[half:] + frame[:half])
            assert await loop.sock_recv(sock, 1 << 16)
        assert await closes(sock)  # and now it sends no more of it
        sock.close()


async def test_a_bug_behind_a_wait_is_answered_and_harms_no_other_call() -> None:
    """It was raised into the node's machine, which had released the answer, and stopped the process."""
    gate = Tide()
    async with behind(gate) as server:
        channel = await open_channel(*server.listeners[0].address, timeout_ms=HANG_MS)
        call = asyncio.create_task(channel.call(WAIT, Ask(""), timeout_ms=HANG_MS))
        await until(lambda: bool(gate.waiting))
        gate.rise()
        with pytest.raises(RpcRefused, match="failed inside the server"):
            await call
        with pytest.raises(RpcRefused, match="failed inside the server"):
            await channel.call(WRONG, Ask(""), timeout_ms=HANG_MS)
        assert server.listeners[0].refusals["bug"] == 2
        channel.close()


async def test_not_known_to_be_durable_is_an_unknown_outcome_for_the_caller() -> None:
    """It was `RpcRefused`, from which a caller may conclude that nothing was done."""
    gate = Tide()
    async with behind(gate) as server:
        channel = await open_channel(*server.listeners[0].address, timeout_ms=HANG_MS)
        call = asyncio.create_task(channel.call(HELD, Ask(""), timeout_ms=HANG_MS))
        await until(lambda: bool(gate.waiting))
        gate.give_up()
        with pytest.raises(CallLost, match="outcome is unknown"):
            await call
        channel.close()


async def test_answers_that_wait_to_be_durable_are_counted_and_bounded() -> None:
    """While the store is away answers wait: 4,096 a connection, of any size, were kept for each."""
    gate = Tide()
    async with behind(gate, quick(unsent_bytes=512 * 1024)) as server:
        sock = await dial(server)
        frame = request(1, HELD.id, HELD.pack_request(Ask("y" * 20_000)))
        sender = asyncio.create_task(asyncio.get_running_loop().sock_sendall(sock, frame * 1000))
        await until(lambda: server.buffered_bytes > 512 * 1024)
        await asyncio.sleep(0.2)
        assert server.buffered_bytes < 2 * 1024 * 1024
        gate.rise()
        while not gate.waiting:  # it goes on as the answers leave
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1 << 20), HANG_MS / 1000)
        sender.cancel()
        sock.close()
        while server.connections:  # while it is not read from, its end is not seen: only when it is answered
            gate.rise()
            await asyncio.sleep(0.01)
        assert server.buffered_bytes == 0


async def answers_until_the_end(sock: socket.socket) -> list[Response]:
    """All that comes until the server says that no more does; a reset raises."""
    loop, cutter, found = asyncio.get_running_loop(), ResponseReader(1 << 20), list[Response]()
    async with asyncio.timeout(HANG_MS / 1000):
        while data := await loop.sock_recv(sock, 1 << 16):
            found += cutter.feed(data)
    return found


async def chatter(sock: socket.socket) -> None:
    """Go on sending until it is refused."""
    async with asyncio.timeout(HANG_MS / 1000):
        while True:
            await asyncio.get_running_loop().sock_sendall(sock, b"and on" * 100)
            await asyncio.sleep(0.01)


async def test_what_came_before_a_broken_frame_is_answered() -> None:
    """With bytes behind it unread the kernel sent a reset, which overtakes answers; those in flight were dropped."""
    gate = Tide()
    async with behind(gate) as server:
        sock, loop = await dial(server), asyncio.get_running_loop()
        good = b"".join(request(seq, HELD.id, b"") for seq in range(3)) + request(3, 0xBAD, b"")
        await loop.sock_sendall(sock, good + b"no frame begins so" * 50_000)
        await until(lambda: gate.waiting == 3)
        gate.rise()
        assert sorted(item.seq for item in await answers_until_the_end(sock)) == [0, 1, 2, 3]
        sock.close()
        await until(lambda: not server.connections)
        assert server.buffered_bytes == 0


async def test_too_large_a_request_is_answered_with_an_error() -> None:
    async with serving(quick(frame_bytes=64 * 1024)) as (server, _):
        sock, loop = await dial(server), asyncio.get_running_loop()
        await loop.sock_sendall(sock, request(5, ECHO.id, b"x" * 4_000_000))
        (refused,) = await answers_until_the_end(sock)
        assert (refused.seq, refused.err) == (5, Err.TOO_LARGE)
        sock.close()


async def test_after_a_broken_frame_a_connection_is_closed_soon() -> None:
    """Neither who does not hang up, nor who goes on sending, nor who waits for an answer that does not come."""
    gate = Tide()
    async with behind(gate) as server:
        loop = asyncio.get_running_loop()
        silent, chatty, waiting = [await dial(server) for _ in range(3)]
        for sock in (silent, chatty):
            await loop.sock_sendall(sock, b"no frame begins so...")
        await loop.sock_sendall(waiting, request(1, HELD.id, b"") + b"no frame begins so...")
        with pytest.raises(OSError, match=r"reset|pipe"):
            await chatter(chatty)
        await until(lambda: not server.connections)
        gate.rise()
        assert server.buffered_bytes == 0
        for sock in (silent, chatty, waiting):
            sock.close()


async def test_full_buffers_cost_the_peer_that_fills_them() -> None:
    async with serving(quick(buffered_bytes=1024 * 1024, frame_bytes=8 * 1024 * 1024)) as (server, channel):
        loop = asyncio.get_running_loop()
        greedy, modest = await dial(server), await dial(server)
        large = request(1, ECHO.id, b"x" * 7_000_000)
        await loop.sock_sendall(greedy, large[:900_000])
        await until(lambda: server.buffered_bytes >= 800_000)
        await loop.sock_sendall(modest, large[:400_000])
        assert await closes(greedy)
        await loop.sock_sendall(modest, large[400_000:500_000])
        await until(lambda: server.buffered_bytes == 500_000)
        await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)
        for sock in (greedy, modest):
            sock.close()


async def test_full_buffers_cost_the_peer_whose_answers_wait() -> None:
    """Answers that wait to be durable fill the buffers, too; a peer with half a request was dropped for them."""
    gate = Tide()
    async with behind(gate, quick(buffered_bytes=1024 * 1024, unsent_bytes=4 * 1024 * 1024)) as server:
        loop = asyncio.get_running_loop()
        greedy, modest = await dial(server), await dial(server)
        await loop.sock_sendall(greedy, request(1, HELD.id, b"") * 12)
        await until(lambda: gate.waiting == 12)
        await loop.sock_sendall(modest, request(1, HELD.id, b"x" * 50_000)[:20_000])
        assert await closes(greedy)
        await until(lambda: server.buffered_bytes == 20_000)  # immediately, not when the store is available again
        gate.rise()
        assert server.buffered_bytes == 20_000
        assert len(server.connections) == 1
        for sock in (greedy, modest):
            sock.close()


async def test_requests_that_wait_are_counted_and_bounded() -> None:
    """A request that waited for the store or for an owner of memory was kept whole, uncounted, 4,096 a connection."""
    gate = Tide()
    async with behind(gate, quick(unsent_bytes=512 * 1024)) as server:
        sock = await dial(server)
        frame = request(1, LONG.id, b"y" * 20_000)
        sender = asyncio.create_task(asyncio.get_running_loop().sock_sendall(sock, frame * 1000))
        await until(lambda: server.buffered_bytes > 512 * 1024)
        await asyncio.sleep(0.2)
        assert server.buffered_bytes < 2 * 1024 * 1024
        sender.cancel()
        server.drop_all("the test has finished")
        assert server.buffered_bytes == 0
        gate.give_up()  # the connection is closed
        assert server.buffered_bytes == 0
        sock.close()


async def test_answers_that_wait_for_a_closed_connection_keep_no_bytes() -> None:
    """P6: they stay in the outbox until their record is durable, but are no longer counted."""
    gate = Tide()
    async with behind(gate) as server:
        sock = await dial(server)
        await asyncio.get_running_loop().sock_sendall(
            sock, request(1, HELD.id, b"") + request(2, LONG.id, b"y" * 1_000)
        )
        await until(lambda: gate.waiting == 2)
        server.drop_all("a test")
        assert server.buffered_bytes == 0
        assert [one.payload for one in gate.outbox.drop_all()] == [None, None]
        sock.close()


async def test_connections_that_idle_make_room_when_it_is_crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client that leaked connections locked out all others for ten minutes, and their pings with them."""
    monkeypatch.setattr("leasehold.wire.server.wire_crowded_idle_ms", 600)
    async with serving(quick(connections_max=10)) as (server, channel):
        idle = [await dial(server) for _ in range(7)]
        for _ in range(15):  # the channel must not be idle itself when it gets crowded
            await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)
            await asyncio.sleep(0.1)
        assert len(server.connections) == 8  # not crowded yet
        idle.append(await dial(server))
        for _ in range(200):
            await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)
            if len(server.connections) < 9:
                break
            await asyncio.sleep(0.02)
        assert len(server.connections) < 9
        assert await closes(idle[0])
        await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)  # a connection with requests is not idle
        for sock in idle:
            sock.close()


async def test_a_flood_of_small_requests_has_turns_of_one_length() -> None:
    """A megabyte of them was taken in one turn: others waited for tens of thousands of requests to be carried out."""
    taken: list[int] = []

    def count(connection: Connection, seq: int, body: bytes) -> Answer:
        taken[-1] += 1
        return Released(response(seq, b""))

    server = Server(None, quick())
    server.serve(listen("127.0.0.1", 0), {1: count})

    def turn() -> None:
        if not taken or taken[-1]:
            taken.append(0)
        server.loop.call_soon(turn)

    turn()
    sock = await dial(server)
    loop = asyncio.get_running_loop()
    sender = asyncio.create_task(loop.sock_sendall(sock, request(1, 1, b"") * 100_000))
    got = 0
    while got < 100_000 * 16:
        got += len(await loop.sock_recv(sock, 1 << 20))
    await sender
    assert max(taken) <= 64 * 1024 // 20 + 1
    sock.close()
    server.close()


@pytest.fixture
def nothing_is_collected() -> Iterator[None]:
    """What other tests have dropped closes its descriptors before, and not in the middle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("nothing_is_collected")
async def test_out_of_descriptors_is_a_pause_and_not_a_busy_loop() -> None:
    async with serving() as (server, channel):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        dialled = [socket.socket() for _ in range(3)]
        lowest = socket.socket()
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno() + 1, hard))
        try:
            lowest.close()
            spare = socket.socket()  # takes the last descriptor
            with capture_logs() as lines:
                for sock in dialled:
                    sock.setblocking(False)
                    await server.loop.sock_connect(sock, server.listeners[0].address)
                for _ in range(100):
                    await asyncio.sleep(0.002)
                await channel.call(ECHO, Ask(""), timeout_ms=HANG_MS)  # those that are here are served
            assert len([line for line in lines if "cannot accept connections" in line["event"]]) == 1
            spare.close()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await until(lambda: len(server.connections) == 4)  # they had to wait, no more
        for sock in dialled:
            sock.close()


async def test_a_storm_of_connections_does_not_flood_the_log() -> None:
    async with serving(quick(idle_ms=60_000)) as (server, _):
        socks = [await dial(server) for _ in range(100)]
        await until(lambda: len(server.connections) == 101)
        with capture_logs() as lines:
            server.drop_all("this node steps down")
        assert [(line["event"], line["count"]) for line in lines] == [("all connections dropped", 101)]
        for sock in socks:
            sock.close()
        socks = [await dial(server) for _ in range(100)]
        await until(lambda: len(server.connections) == 100)
        with capture_logs() as lines:
            for connection in list(server.connections):
                connection.abort("one by one")
            await until(lambda: sum(line.get("count", 1) for line in lines) == 100, "all are counted")
        assert len(lines) <= 22
        for sock in socks:
            sock.close()
