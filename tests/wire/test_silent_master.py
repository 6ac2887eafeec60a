"""What becomes of calls when the master, or the way to it, goes away without a word."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from leasehold.base.errors import CallerError, Unavailable, UnknownOutcome
from leasehold.testing.mooncake import StandaloneMaster
from leasehold.wire import peer_timeout
from leasehold.wire.client import Client
from leasehold.wire.errors import CallLost
from leasehold.wire.finder import Address, AddressList, parse_address

CALL_MS = 60_000
PATIENCE_S = 40.0  # it usually takes two seconds: what counts is that it is not the call's whole time


@pytest.fixture(scope="module")
def master() -> Iterator[StandaloneMaster]:
    with StandaloneMaster() as made:
        yield made


class Line:
    """A way to a master that can be cut without a reset: what is sent is swallowed, nothing comes back."""

    def __init__(self, master: Address) -> None:
        self._master = master
        self.cut = False
        self.swallowed_bytes = 0
        self.address: Address = ("", 0)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._master)
        try:
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            if not self.cut:
                target.write(data)
            else:
                self.swallowed_bytes += len(data)
        if not self.cut:
            target.close()


@asynccontextmanager
async def line_to(master: StandaloneMaster) -> AsyncIterator[Line]:
    line = Line(parse_address(master.rpc))
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.address = server.sockets[0].getsockname()[:2]
    try:
        yield line
    finally:
        server.close()


async def test_a_client_leaves_a_master_that_no_longer_answers(master: StandaloneMaster) -> None:
    """Every call waited out its time on the same dead connection, for the quarter of an hour that TCP takes."""
    async with line_to(master) as line:
        client = Client(AddressList([line.address, parse_address(master.rpc)]), timeout_ms=CALL_MS)
        assert not await client.exist_key("k")
        line.cut = True
        began_s = time.monotonic()
        assert not await client.exist_key("k")
        assert time.monotonic() - began_s < PATIENCE_S, "long before its own timeout"
        client.close()


async def test_a_write_on_a_silent_connection_fails_soon_with_an_unknown_outcome(master: StandaloneMaster) -> None:
    async with line_to(master) as line:
        client = Client(AddressList([line.address, parse_address(master.rpc)]), timeout_ms=CALL_MS)
        assert await client.remove_by_regex("^never$") == 0
        line.cut = True
        began_s = time.monotonic()
        with pytest.raises(UnknownOutcome, match="no longer answers"):
            await client.remove_by_regex("^never$")
        assert time.monotonic() - began_s < PATIENCE_S, "long before its own timeout"
        assert await client.remove_by_regex("^never$") == 0  # over the other address
        client.close()


async def test_a_slow_answer_is_waited_for_while_the_master_is_there(
    master: StandaloneMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other answers, and those to a probe, show that it lives: a call whose record is not durable yet may take long."""
    monkeypatch.setattr(peer_timeout, "SILENCE_S", 2.0)  # a master that is held up for a second is no silent one here
    silent_s = 5.0

    class Slow(Line):
        """The second request reaches the master late, the requests behind it immediately."""

        async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            to_master, self.cut = self.cut, False  # that way is the first to be copied
            count = 0
            while data := await source.read(1 << 16):
                count += 1
                if to_master and count == 2:
                    asyncio.get_running_loop().call_later(silent_s, target.write, data)
                else:
                    target.write(data)
            target.close()

    line = Slow(parse_address(master.rpc))
    line.cut = True
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    client = Client(AddressList([server.sockets[0].getsockname()[:2]]), timeout_ms=CALL_MS)
    assert await client.remove_by_regex("^never$") == 0
    began_s = time.monotonic()
    assert await client.remove_by_regex("^never$") == 0
    assert time.monotonic() - began_s > silent_s - 0.5
    assert client.calls.reconnects == 1
    client.close()
    server.close()


async def test_a_connection_that_was_never_answered_is_not_used_again(master: StandaloneMaster) -> None:
    async with line_to(master) as line:
        line.cut = True
        client = Client(AddressList([line.address, parse_address(master.rpc)]), timeout_ms=CALL_MS)
        with pytest.raises(CallLost):
            await client.calls.mooncake("ExistKey", b"k", b"default", repeat=True, timeout_ms=300)
        before = line.swallowed_bytes
        assert not await client.exist_key("k")
        assert line.swallowed_bytes == before > 0, "nothing more was sent to it"
        client.close()


class Held(Line):
    """Accepts and reads, but answers only from `release` on: as a guardian does while no node leads."""

    def __init__(self, master: Address) -> None:
        super().__init__(master)
        self.release = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.release.wait()
        await super().serve(reader, writer)


async def test_a_client_leaves_a_frozen_process_that_still_accepts_connections(master: StandaloneMaster) -> None:
    """The kernel accepts for a stopped process. A client with two addresses waited there for its whole deadline."""
    frozen = Held(parse_address(master.rpc))
    server = await asyncio.start_server(frozen.serve, "127.0.0.1", 0)
    client = Client(
        AddressList([server.sockets[0].getsockname()[:2], parse_address(master.rpc)]),
        timeout_ms=CALL_MS,
    )
    began_s = time.monotonic()
    assert not await client.exist_key("k")
    assert time.monotonic() - began_s < PATIENCE_S, "long before its own timeout"
    client.close()
    frozen.release.set()
    server.close()


async def test_a_held_connection_is_kept_while_no_address_answers(
    master: StandaloneMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write on it is carried out when a node leads: leaving the connection would make its outcome unknown."""
    monkeypatch.setattr(peer_timeout, "SILENCE_S", 0.5)
    lines = [Held(parse_address(master.rpc)) for _ in range(2)]
    servers = [await asyncio.start_server(line.serve, "127.0.0.1", 0) for line in lines]
    client = Client(AddressList([server.sockets[0].getsockname()[:2] for server in servers]), timeout_ms=CALL_MS)
    writing = asyncio.create_task(client.remove_by_regex("^never$"))
    await asyncio.sleep(3)  # no condition: it looks elsewhere several times meanwhile
    assert not writing.done()
    for line in lines:
        line.release.set()
    assert await writing == 0
    assert client.calls.reconnects == 1
    client.close()
    for server in servers:
        server.close()


async def test_a_deadline_holds_while_the_master_is_being_looked_for() -> None:
    class Nowhere:
        async def find(self) -> Address:
            await asyncio.sleep(3600)
            raise AssertionError("not reached")

    client = Client(Nowhere(), timeout_ms=300)
    began_s = time.monotonic()
    calls: list[Callable[[], object]] = [client.service_ready, client.ping]
    results = await asyncio.gather(*(call() for call in calls), return_exceptions=True)  # type: ignore[call-overload] # coroutines
    assert [type(result) for result in results] == [Unavailable, Unavailable]
    assert time.monotonic() - began_s < PATIENCE_S
    client.close()


async def test_a_closed_client_stays_closed(master: StandaloneMaster) -> None:
    """The next call opened a connection that was never closed."""
    client = Client(master.rpc)
    await client.service_ready()
    client.close()
    with pytest.raises(CallerError, match="is closed"):
        await client.service_ready()
    unused = Client(master.rpc)
    unused.close()
    with pytest.raises(CallerError, match="is closed"):
        await unused.put_end("k")


async def test_closing_with_calls_in_flight_ends_each_of_them(master: StandaloneMaster) -> None:
    async with line_to(master) as line:
        client = Client(AddressList([line.address]), timeout_ms=CALL_MS)
        await client.service_ready()
        line.cut = True
        calls = [asyncio.create_task(client.exist_key("k")), asyncio.create_task(client.remove_all())]
        await asyncio.sleep(0.05)
        client.close()
        async with asyncio.timeout(PATIENCE_S):
            results = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(results[0], CallerError)
        assert isinstance(results[1], CallLost)
