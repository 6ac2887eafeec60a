"""The connection forwarder on real sockets: hold, forward, reset; nothing is read before a primary says HELLO."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from leasehold.node.guardian.forwarder import HELLO, ConnectionForwarder
from leasehold.node.guardian.parting import QUIET_MS
from leasehold.testing.waiting import until
from leasehold.wire.frame import Err, ResponseReader, request, response

HANG_S = 30.0  # only ends a hang; not a measurement


class Primary:
    """A forward port: sends HELLO only while `serves`, then echoes."""

    def __init__(self) -> None:
        self.serves = True
        self.tables: list[str] = []
        self.received = b""
        self.writers: list[asyncio.StreamWriter] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = (await reader.readexactly(1))[0]
        self.tables.append((await reader.readexactly(length)).decode())
        if not self.serves:
            writer.close()
            return
        self.writers.append(writer)
        writer.write(HELLO)
        while data := await reader.read(4096):
            self.received += data
            writer.write(data)


@pytest.fixture
async def primary() -> AsyncIterator[tuple[Primary, str]]:
    worker = Primary()
    server = await asyncio.start_server(worker.handle, "127.0.0.1", 0)
    yield worker, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for writer in worker.writers:
        writer.close()
    await server.wait_closed()


@asynccontextmanager
async def a_forwarder(
    *, hold_timeout_ms: int = 60_000, idle_ms: int = 60_000
) -> AsyncIterator[tuple[ConnectionForwarder, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    made = ConnectionForwarder([(listener, "0.3.12")], held_max=4, hold_timeout_ms=hold_timeout_ms, idle_ms=idle_ms)
    made.set_open(True)
    yield made, listener.getsockname()[1]
    await made.close()
    listener.close()


@pytest.fixture
async def forwarder() -> AsyncIterator[tuple[ConnectionForwarder, int]]:
    """A forwarder with generous limits, which are not tested."""
    async with a_forwarder() as made:
        yield made


async def read(reader: asyncio.StreamReader, count: int = 1) -> bytes:
    return await asyncio.wait_for(reader.readexactly(count), HANG_S)


async def test_a_held_connection_is_forwarded_once_there_is_a_primary(
    forwarder: tuple[ConnectionForwarder, int], primary: tuple[Primary, str]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
    writer.write(b"early bytes")
    await asyncio.sleep(0.05)
    assert primary[0].received == b""
    forwarder[0].point(primary[1])
    assert await read(reader, 11) == b"early bytes"
    assert primary[0].tables == ["0.3.12"]
    writer.write(b"x" * 3_000_000)
    assert len(await read(reader, 3_000_000)) == 3_000_000
    writer.close()


async def test_nothing_is_read_before_the_worker_confirms_that_it_is_primary(
    forwarder: tuple[ConnectionForwarder, int], primary: tuple[Primary, str]
) -> None:
    primary[0].serves = False
    forwarder[0].point(primary[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
    writer.write(b"question")
    await until(lambda: len(primary[0].tables) >= 3, "it is dialled again and again")
    assert primary[0].received == b""
    primary[0].serves = True
    assert await read(reader, 8) == b"question"
    writer.close()


async def test_a_client_that_has_closed_is_dropped_with_its_bytes(
    forwarder: tuple[ConnectionForwarder, int], primary: tuple[Primary, str]
) -> None:
    """Schedule 20d: bytes held for a client that gave up are never delivered."""
    _, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
    writer.write(b"remove the old object")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    forwarder[0].point(primary[1])
    await until(lambda: forwarder[0].counts["gone"] == 1, "the client's going is seen")
    assert primary[0].received == b""


async def test_a_forwarded_connection_is_reset_when_its_primary_dies(
    forwarder: tuple[ConnectionForwarder, int], primary: tuple[Primary, str]
) -> None:
    forwarder[0].point(primary[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
    writer.write(b"1")
    await reader.readexactly(1)
    primary[0].writers[0].transport.abort()
    with pytest.raises(ConnectionResetError):
        await read(reader)
    writer.close()


async def test_a_connection_beyond_the_limit_is_reset_immediately(forwarder: tuple[ConnectionForwarder, int]) -> None:
    held = [await asyncio.open_connection("127.0.0.1", forwarder[1]) for _ in range(4)]
    for _, each in held:
        each.write(b"?")
    await until(lambda: forwarder[0].waiting == 4, "four wait")

    async def connect_and_read() -> None:  # reset at connect, or at the first read: whichever comes first
        reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
        held.append((reader, writer))
        await read(reader)

    with pytest.raises(ConnectionResetError):
        await connect_and_read()
    for _, each in held:
        each.close()


async def test_a_held_connection_times_out() -> None:
    async with a_forwarder(hold_timeout_ms=300) as forwarder:
        reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
        writer.write(b"?")
        with pytest.raises(ConnectionResetError):
            await read(reader)
        assert forwarder[0].counts["reset_timeout"] == 1
        writer.close()


async def test_no_worker_is_dialled_for_an_idle_connection(primary: tuple[Primary, str]) -> None:
    """Thousands of idle connections survive a worker: a new primary must not have to accept them all."""
    async with a_forwarder(idle_ms=300) as forwarder:
        forwarder[0].point(primary[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
        with pytest.raises(ConnectionResetError):
            await read(reader)
        assert primary[0].tables == []
        assert forwarder[0].counts["reset_timeout"] == 0, "it was ended for being idle"
        writer.close()


class Answering(Primary):
    """Answers every request of one known length, or never answers."""

    def __init__(self, name: bytes) -> None:
        super().__init__()
        self.name = name
        self.answers = True

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly((await reader.readexactly(1))[0])
        self.writers.append(writer)
        writer.write(HELLO)
        while data := await reader.read(4096):
            self.received += data
            if self.answers:
                writer.write(response(1, self.name))


@asynccontextmanager
async def serving(name: bytes) -> AsyncIterator[tuple[Answering, str]]:
    worker = Answering(name)
    server = await asyncio.start_server(worker.handle, "127.0.0.1", 0)
    yield worker, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for writer in worker.writers:
        writer.transport.abort()
    await server.wait_closed()


REQUEST = request(1, 7, b"is it there?")


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(REQUEST)
    head_bytes = len(response(1, b""))
    return (await read(reader, head_bytes + 5))[head_bytes:]


async def test_a_forwarded_connection_without_an_open_request_moves_to_the_next_primary(
    forwarder: tuple[ConnectionForwarder, int],
) -> None:
    async with serving(b"first") as (primary, first), serving(b"later") as (_, later):
        forwarder[0].point(first)
        client = await asyncio.open_connection("127.0.0.1", forwarder[1])
        assert await ask(*client) == b"first"
        forwarder[0].point("")
        primary.writers[0].transport.abort()
        await until(lambda: forwarder[0].counts["held_again"] == 1, "it is held again")
        writing = asyncio.ensure_future(ask(*client))
        await asyncio.sleep(0.05)
        forwarder[0].point(later)
        assert await writing == b"later"
        client[1].close()


async def test_a_forwarded_connection_with_a_request_open_is_reset(forwarder: tuple[ConnectionForwarder, int]) -> None:
    """Schedule 20a: the first primary may have executed it."""
    async with serving(b"first") as (primary, first), serving(b"later") as (other, later):
        forwarder[0].point(first)
        reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
        assert await ask(reader, writer) == b"first"
        primary.answers = False
        writer.write(REQUEST)
        await until(lambda: primary.received == 2 * REQUEST, "it was read")
        forwarder[0].point(later)
        primary.writers[0].transport.abort()
        with pytest.raises(ConnectionResetError):
            await read(reader)
        assert other.received == b""
        writer.close()


class Late(Primary):
    """Reads until the client shuts down, and answers only after `let` is set, with many bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()
        self.ended = False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly((await reader.readexactly(1))[0])
        self.writers.append(writer)
        writer.write(HELLO)
        self.received = await reader.readexactly(len(REQUEST))
        self.received += await reader.read()
        self.ended = True
        await self.let.wait()
        writer.write(LONG)
        writer.close()


LONG = response(1, b"x" * 1_000_000)


@asynccontextmanager
async def late_primary() -> AsyncIterator[tuple[Late, str]]:
    worker = Late()
    server = await asyncio.start_server(worker.handle, "127.0.0.1", 0)
    yield worker, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for writer in worker.writers:
        writer.transport.abort()
    await server.wait_closed()


async def ask_for_the_last_time(
    forwarder: tuple[ConnectionForwarder, int], primary: Late, address: str, half_a_request: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that has sent a request, is forwarded, and has shut down its sending side."""
    forwarder[0].point(address)
    reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
    writer.write(REQUEST)
    await until(lambda: primary.received == REQUEST, "it was forwarded")
    writer.write(half_a_request)
    writer.write_eof()
    await until(lambda: primary.ended, "the primary hears that nothing more comes")
    return reader, writer


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("half_a_request", [b"", REQUEST[:9]], ids=["whole", "and half a request"])
async def test_a_client_that_shuts_down_gets_its_last_answers(
    forwarder: tuple[ConnectionForwarder, int], moves: bool, half_a_request: bytes
) -> None:
    """It has shut down its sending side, as `nc -N` and others do: its requests must still be answered."""
    async with late_primary() as (primary, address):
        reader, writer = await ask_for_the_last_time(forwarder, primary, address, half_a_request)
        assert primary.received == REQUEST + half_a_request
        if moves:
            forwarder[0].point("127.0.0.1:1")
            await asyncio.sleep(0.05)
        primary.let.set()
        assert await read(reader, len(LONG)) == LONG
        assert await asyncio.wait_for(reader.read(), HANG_S) == b"", "an orderly end, and no reset"
        assert forwarder[0].counts["held_again"] == 0
        writer.close()


async def test_a_client_that_shut_down_is_reset_if_the_primary_dies_before_it_answers(
    forwarder: tuple[ConnectionForwarder, int],
) -> None:
    async with late_primary() as (primary, address):
        reader, writer = await ask_for_the_last_time(forwarder, primary, address)
        primary.writers[0].transport.abort()
        with pytest.raises(ConnectionResetError):
            await read(reader)
        writer.close()


async def test_a_client_with_malformed_requests_gets_the_answer_of_the_primary(
    forwarder: tuple[ConnectionForwarder, int],
) -> None:
    """The worker answers, shuts down, and keeps reading: a reset could discard its answer."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(HELLO)
        await reader.readexactly(9)
        writer.write(LONG)
        writer.write_eof()
        while await reader.read(1 << 16):
            pass
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    forwarder[0].point(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
    writer.write(b"GET / HTTP/1.1\r\n" * 10)
    assert await asyncio.wait_for(reader.read(), HANG_S) == LONG
    writer.close()
    server.close()
    await server.wait_closed()


async def test_a_primary_that_closes_every_connection_is_not_dialled_in_a_loop(
    forwarder: tuple[ConnectionForwarder, int],
) -> None:
    """It sends HELLO and closes (it has too many connections): dialling in a loop would overload it."""
    dials = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dials
        dials += 1
        await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(HELLO)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    forwarder[0].point(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
    writer.write(REQUEST)
    with pytest.raises(ConnectionResetError):
        await read(reader)
    assert dials <= 2
    writer.close()
    server.close()
    await server.wait_closed()


async def refused(reader: asyncio.StreamReader) -> int:
    """The error code of the next answer."""
    frames = ResponseReader(1 << 20)
    while True:
        data = await asyncio.wait_for(reader.read(4096), HANG_S)
        assert data, "the connection ended without an answer"
        for answer in frames.feed(data):
            return answer.err


TURNS = range(8)  # of the loop, between the change of the primary and a request: each step of the forwarder is met


@pytest.mark.parametrize("turns", TURNS)
async def test_a_request_that_arrives_when_the_primary_changes_is_passed_to_the_next(
    forwarder: tuple[ConnectionForwarder, int], turns: int
) -> None:
    """It was read by a copy that had just been cancelled, and the connection was reset."""
    async with serving(b"first") as (_, first), serving(b"later") as (_, later):
        forwarder[0].point(first)
        reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
        assert await ask(reader, writer) == b"first"
        forwarder[0].point(later)
        for _ in range(turns):
            await asyncio.sleep(0)
        assert await ask(reader, writer) == b"later"
        writer.close()


@pytest.mark.parametrize("turns", TURNS)
async def test_a_request_that_arrives_when_the_node_stops_is_refused(
    forwarder: tuple[ConnectionForwarder, int], turns: int
) -> None:
    async with serving(b"first") as (_, first):
        forwarder[0].point(first)
        reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
        assert await ask(reader, writer) == b"first"
        parting = asyncio.ensure_future(forwarder[0].part(HANG_S))
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        writer.write(REQUEST)
        assert await refused(reader) == Err.NOT_CONNECTED
        writer.close()
        await parting


async def test_connections_in_the_accept_queue_are_refused_too(forwarder: tuple[ConnectionForwarder, int]) -> None:
    """Closing a listening socket resets the connections in its queue."""
    clients = [socket.create_connection(("127.0.0.1", forwarder[1])) for _ in range(3)]
    for client in clients:
        client.sendall(REQUEST)
        client.setblocking(False)
    parting = asyncio.ensure_future(forwarder[0].part(HANG_S))
    for client in clients:
        reader, writer = await asyncio.open_connection(sock=client)
        assert await refused(reader) == Err.NOT_CONNECTED
        writer.close()
    await parting
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", forwarder[1])


async def test_a_stop_waits_for_slow_answers_and_for_clients_that_were_just_answered(
    forwarder: tuple[ConnectionForwarder, int],
) -> None:
    async with serving(b"first") as (primary, first):
        forwarder[0].point(first)
        reader, writer = await asyncio.open_connection("127.0.0.1", forwarder[1])
        primary.answers = False
        writer.write(REQUEST)
        await until(lambda: primary.received == REQUEST, "it was read")
        parting = asyncio.ensure_future(forwarder[0].part(HANG_S))
        await asyncio.sleep(1.5 * QUIET_MS / 1000)
        writer.write(REQUEST)  # while the first is open: it is not passed on
        await asyncio.sleep(0.1)
        primary.writers[0].write(response(1, b"first"))
        assert await read(reader, len(response(1, b"first"))) == response(1, b"first")
        assert await refused(reader) == Err.NOT_CONNECTED
        assert primary.received == REQUEST
        assert not parting.done()
        assert await asyncio.wait_for(reader.read(), HANG_S) == b"", "a quiet connection is closed without a reset"
        await parting
        writer.close()
