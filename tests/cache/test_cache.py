"""Running authorities and clients: over the wire and in one process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import uvloop

import leasehold
from leasehold.base.errors import CallerError, InvalidArgument, Unavailable, UnknownOutcome
from leasehold.cache import (
    ABSENT,
    Authority,
    AuthoritySettings,
    Busy,
    CacheServer,
    Client,
    ClientSettings,
    Conflict,
    CoordStore,
    Expired,
    HookStore,
    MemoryStore,
    SqliteStore,
    SyncClient,
    Value,
    Version,
    run_for_term,
    run_in_office,
)
from leasehold.runtime.clock import BootClock
from leasehold.testing.cache import CacheProcess
from leasehold.testing.ports import free_ports
from leasehold.testing.waiting import until


@asynccontextmanager
async def serving(term_ms: int) -> AsyncIterator[CacheServer]:
    authority = await Authority.open(MemoryStore(), AuthoritySettings(term_ms=term_ms))
    served = CacheServer()
    served.install(authority)
    yield served
    await authority.close(drain_s=0.05)
    served.close()


@pytest.fixture
async def server() -> AsyncIterator[CacheServer]:
    """With leases that do not expire during a test, even on a busy machine."""
    async with serving(60_000) as served:
        yield served


@pytest.fixture
async def short_leases() -> AsyncIterator[CacheServer]:
    """With leases that expire during a test."""
    async with serving(2_000) as served:
        yield served


async def test_a_write_is_seen_by_all_clients_immediately(server: CacheServer) -> None:
    async with Client(server.address) as one, Client(server.address) as two, Client(server.address) as three:
        assert await one.get(b"k") is None
        for number in range(20):
            value = b"%d" % number
            await one.put(b"k", value)
            assert [await reader.get(b"k") for reader in (one, two, three)] == [value] * 3
        assert two.statistics().callbacks == 19


async def test_hits_send_no_request(server: CacheServer) -> None:
    async with Client(server.address) as client:
        await client.put(b"k", b"v")
        for _ in range(1_000):
            assert await client.get(b"k") == b"v"
        assert client.statistics().misses == 1
        assert client.statistics().hits == 999
        assert client.get_local(b"k") is not None
        assert client.get_local(b"other") is None


async def test_concurrent_misses_and_many_keys_ask_once(server: CacheServer) -> None:
    async with Client(server.address) as client:
        keys = [b"k%d" % number for number in range(50)]
        await asyncio.gather(*(client.put(key, key) for key in keys))
        found = await asyncio.gather(*(client.get_many(keys) for _ in range(5)))
        assert all(each == {key: key for key in keys} for each in found)
        assert await client.get_many([]) == {}
        assert client.machine._seq == 51


async def test_compare_and_set(server: CacheServer) -> None:
    async with Client(server.address) as client:
        version = await client.put(b"k", b"1", expect=ABSENT)
        with pytest.raises(Conflict) as conflict:
            await client.put(b"k", b"2", expect=ABSENT)
        assert conflict.value.current == version
        seen = await client.get_versioned(b"k")
        assert seen.version == version
        await client.put(b"k", b"2", expect=seen.version)
        with pytest.raises(Conflict):
            await client.delete(b"k", expect=seen.version)
        await client.delete(b"k")
        assert await client.get(b"k") is None
        await client.put(b"k", b"3", expect=ABSENT)


async def test_modes(short_leases: CacheServer) -> None:
    async with Client(short_leases.address) as holder, Client(short_leases.address) as writer:
        await writer.put(b"k", b"1")
        await holder.get(b"k")
        with pytest.raises(Busy):
            await writer.put(b"k", b"2", mode="fail")
        with pytest.raises(Expired):
            await writer.put(b"k", b"2", mode="wait", timeout_s=0.2)
        assert await holder.get(b"k") == b"1"
        await writer.put(b"k", b"2", mode="wait", timeout_s=60)
        assert await holder.get(b"k") == b"2"


async def test_no_reader_waits_for_a_writer(short_leases: CacheServer) -> None:
    """A holder that does not answer delays the write, but no read."""
    async with Client(short_leases.address) as writer, Client(short_leases.address) as reader:
        silent = Client(short_leases.address)
        await writer.put(b"k", b"1")
        await silent.get(b"k")
        silent._connector.link.close()  # type: ignore[union-attr]  # without a message, as after a network cut
        silent._connector.closed = True
        await reader.get(b"k")
        write = asyncio.ensure_future(writer.put(b"k", b"2"))
        await until(lambda: reader.get_local(b"k") is None, "the reader was called back")
        assert await reader.get(b"k") == b"1"
        assert not write.done()
        await write
        assert await reader.get(b"k") == b"2"


async def test_schedule_22e_a_subscription_reports_new_keys(server: CacheServer) -> None:
    """No range is answered from memory, so none can lack a key. A prefix notifies, and reports missed changes."""
    async with (
        Client(server.address) as writer,
        Client(server.address) as reader,
        reader.subscribe(b"conf/") as changes,
    ):
        version = await writer.put(b"conf/a", b"1")
        await writer.put(b"elsewhere", b"1")
        change = await asyncio.wait_for(anext(changes), 60)
        assert (change.key, change.version) == (b"conf/a", version)
        reader._connector.cut()
        await reader.get(b"anything")
        change = await asyncio.wait_for(anext(changes), 60)
        assert change.missed
        await writer.delete(b"conf/a")
        assert (await asyncio.wait_for(anext(changes), 60)).key == b"conf/a"


async def test_bad_input_is_refused_by_name(server: CacheServer) -> None:
    async with Client(server.address) as client:
        for call in (
            lambda: client.get(b""),
            lambda: client.get("text"),  # type: ignore[arg-type]  # the point
            lambda: client.put(b"k" * 5_000, b""),
            lambda: client.put(b"k", b"x" * (1024 * 1024 + 1)),
            lambda: client.put(b"k", b"", mode="sometimes"),
            lambda: client.put(b"k", b"", timeout_s=0),
        ):
            with pytest.raises(InvalidArgument):
                await call()
    with pytest.raises(CallerError):
        await client.get(b"k")
    with pytest.raises(InvalidArgument):
        Client("nowhere")
    with pytest.raises(CallerError):
        await Authority.open(MemoryStore(), AuthoritySettings(term_ms=1))


async def test_garbage_on_the_port_harms_no_client(server: CacheServer) -> None:
    host, _, port = server.address.rpartition(":")
    async with Client(server.address) as client:
        await client.put(b"k", b"v")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 20)
        assert await reader.read() == b""
        writer.close()
        assert await client.get_many([b"k"]) == {b"k": b"v"}


async def test_a_missing_authority_is_reported_in_time() -> None:
    client = Client("127.0.0.1:1", ClientSettings(timeout_ms=200))
    with pytest.raises(Unavailable):
        await client.get(b"k")
    await client.close()


async def test_restart_reads_immediately_and_writes_after_the_maximum_term(tmp_path: Path) -> None:
    settings = AuthoritySettings(term_ms=1_500)
    first = await Authority.open(SqliteStore(tmp_path / "c.db"), settings)
    holder = Client(first)
    await holder.put(b"k", b"1")
    assert await holder.get(b"k") == b"1"
    first.kill()  # with a lease out, and without any message

    started = time.monotonic()
    second = await Authority.open(SqliteStore(tmp_path / "c.db"), settings)
    async with Client(second) as client:
        writing = asyncio.ensure_future(client.put(b"k", b"2", timeout_s=60))
        assert await client.get(b"k") == b"1"
        assert not writing.done()
        await writing
        assert time.monotonic() - started >= 1.45
        assert holder.get_local(b"k") is None  # by its own clock
    assert await second.close()

    third = await Authority.open(SqliteStore(tmp_path / "c.db"), settings)
    assert third.machine.term.writes_from_ms <= third._clock.now_ms()  # after a clean stop writes do not wait
    async with Client(third) as client:
        await client.put(b"k", b"3")
    await third.close()


async def test_schedule_22h_in_memory_a_restart_is_a_new_world_in_which_no_old_version_counts() -> None:
    """Values are lost and writes do not wait; but a version from before is never valid again."""
    first = await Authority.open(MemoryStore(), AuthoritySettings(term_ms=20_000))
    holder = Client(first)
    before = await holder.put(b"k", b"1")
    assert await holder.get(b"k") == b"1"
    first.kill()
    second = await Authority.open(MemoryStore(), AuthoritySettings(term_ms=20_000))
    async with Client(second) as client:
        assert await client.get_versioned(b"k") == Value(None, ABSENT)
        with pytest.raises(Conflict):
            await client.put(b"k", b"2", expect=before, timeout_s=10)
        assert await client.put(b"k", b"2", expect=ABSENT, timeout_s=10) > before
    await second.close()


async def test_schedule_h13b_no_marker_while_a_lease_is_live(tmp_path: Path) -> None:
    settings = AuthoritySettings(term_ms=5_000)
    first = await Authority.open(SqliteStore(tmp_path / "c.db"), settings)
    holder = Client(first)
    await holder.get(b"k")
    holder.machine.handle = lambda now_ms, event: []  # type: ignore[method-assign]  # a client that does not listen
    assert not await first.close(drain_s=0.1)
    opened_ms = BootClock().now_ms()
    second = await Authority.open(SqliteStore(tmp_path / "c.db"), settings)
    assert second.machine.term.writes_from_ms >= opened_ms + settings.term_ms
    second.kill()


async def test_unknown_outcome_of_the_store_behind_ends_under_a_newer_token() -> None:
    tokens: list[Version] = []
    kept: dict[bytes, bytes | None] = {}

    async def load(key: bytes) -> bytes | None:
        return kept.get(key)

    async def store(key: bytes, value: bytes | None, token: Version) -> None:
        tokens.append(token)
        if len(tokens) == 1:
            raise TimeoutError("no answer")
        kept[key] = value

    authority = await Authority.open(HookStore(load, store), AuthoritySettings(term_ms=50))
    async with Client(authority) as client:
        version = await client.put(b"k", b"v")
        assert version == tokens[1] > tokens[0]
        assert await client.get(b"k") == b"v"
    await authority.close()


async def test_failover_over_an_election(prefix: bytes) -> None:
    settings = AuthoritySettings(term_ms=300)
    name = prefix.decode()
    async with await leasehold.connect("memory://") as coord:
        servers = [CacheServer(), CacheServer()]
        campaigns = [
            asyncio.ensure_future(
                run_for_term(
                    coord,
                    lambda: CoordStore(coord, prefix),
                    settings,
                    server.install,
                    name=f"n{number}",
                    prefix=name + "office",
                    ttl_s=2,
                )
            )
            for number, server in enumerate(servers)
        ]
        async with Client([server.address for server in servers]) as client:
            await client.put(b"k", b"1")
            assert await client.get(b"k") == b"1"
            first = next(number for number, server in enumerate(servers) if server._authority is not None)
            campaigns[first].cancel()
            await asyncio.wait([campaigns[first]])
            await client.put(b"k", b"2")
            assert await client.get(b"k") == b"2"
            assert servers[1 - first]._authority is not None
        campaigns[1 - first].cancel()
        await asyncio.wait(campaigns)
        for server in servers:
            server.close()


def test_the_old_name_of_run_for_term_warns() -> None:
    with pytest.warns(DeprecationWarning, match="call run_for_term"):
        run = run_in_office(None, MemoryStore, AuthoritySettings(), lambda authority: None, name="n")
    assert getattr(run, "__qualname__", "") == "run_for_term"
    run.close()


async def test_after_a_lost_connection_a_write_is_unknown_and_a_read_is_repeated(server: CacheServer) -> None:
    async with Client(server.address) as holder, Client(server.address) as client:
        await holder.put(b"k", b"1")
        await holder.get(b"k")
        write = asyncio.ensure_future(client.put(b"k", b"2", mode="wait"))
        await until(lambda: bool(client.machine._writes.by_request), "the write is on its way")
        await asyncio.sleep(0.05)
        client._connector.cut()
        with pytest.raises(UnknownOutcome):
            await write
        assert await client.get(b"k") in (b"1", b"2")


def test_client_on_uvloop() -> None:
    """Its transports are not asyncio's: nothing may depend on that."""

    async def talk() -> bytes | None:
        server = CacheServer()
        authority = await Authority.open(MemoryStore(), AuthoritySettings(term_ms=500))
        server.install(authority)
        async with Client(server.address) as client:
            await client.put(b"k", b"v")
            found = await client.get(b"k")
        await authority.close()
        server.close()
        return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(asyncio.wait_for(talk(), 60)) == b"v"


FORKING = """
import os, sys
from leasehold.cache import SyncClient

client = SyncClient(sys.argv[1])
assert client.get(b"k") == b"1"
identity = client._client.identity
child = os.fork()
if child == 0:
    same = client._client.identity == identity
    os._exit(int(same or client._client.get_local(b"k") is not None))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert client._client.identity == identity
assert client._client.get_local(b"k") is not None
client.close()
"""


async def test_schedule_22g_sync_client_and_fork(server: CacheServer) -> None:
    """The child of a fork has its own identity and nothing of its parent's cache.

    In a separate process, so that the state of other tests is not forked along.
    """
    async with Client(server.address) as client:
        await client.put(b"k", b"1")
    command = [sys.executable, "-c", FORKING, server.address]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


async def test_sync_client(server: CacheServer) -> None:
    await asyncio.to_thread(use_sync_client, server.address)


def use_sync_client(address: str) -> None:
    with SyncClient(address) as client:
        client.put(b"k", b"1")
        assert client.get(b"k") == b"1"
        assert client.get_many([b"k", b"x"]) == {b"k": b"1", b"x": None}
        assert client.get(b"k") == b"1"
        client.delete(b"k")
        assert client.get_versioned(b"k").version == ABSENT
        assert client.statistics().hits >= 1


def test_a_stopped_process_serves_nothing_stale(tmp_path: Path) -> None:
    """SIGSTOP past the lease, then SIGCONT: the first thing it answers is the new value."""
    script = (
        "import sys, time\nfrom leasehold.cache import SyncClient\n"
        "client = SyncClient(sys.argv[1])\n"
        "for line in sys.stdin:\n    print(client.get(b'k').decode(), flush=True)\n"
    )
    with CacheProcess(tmp_path, "--term", "500ms") as served, SyncClient(served.address) as writer:
        writer.put(b"k", b"1")
        reader = subprocess.Popen(
            [sys.executable, "-c", script, served.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert reader.stdin is not None
        assert reader.stdout is not None
        try:
            print(file=reader.stdin, flush=True)
            assert reader.stdout.readline().strip() == "1"
            os.kill(reader.pid, signal.SIGSTOP)
            print(file=reader.stdin, flush=True)
            writer.put(b"k", b"2", timeout_s=60)
            os.kill(reader.pid, signal.SIGCONT)
            assert reader.stdout.readline().strip() == "2"
        finally:
            reader.kill()
            reader.wait()


async def test_a_refused_connection_at_every_address_is_reported_immediately() -> None:
    """`leasehold cache get` without a server took eleven seconds to fail."""
    started = time.monotonic()
    one, two = free_ports(2)
    async with Client([f"127.0.0.1:{one}", f"localhost:{two}"]) as client:
        with pytest.raises(Unavailable, match="is `leasehold cache serve` running"):
            await client.connected(60)
    assert time.monotonic() - started < 8


async def test_a_call_waits_for_a_server_that_is_being_restarted() -> None:
    port = free_ports(1)[0]
    async with Client(f"127.0.0.1:{port}") as client:
        asking = asyncio.ensure_future(client.get(b"k"))
        with pytest.raises(Unavailable):
            await client.connected(60)
        assert not asking.done()
        server = CacheServer("127.0.0.1", port)
        server.install(await Authority.open(MemoryStore()))
        try:
            assert await asking is None
            await client.connected(60)
        finally:
            server.close()


async def test_concurrent_writes_call_a_holder_back_together(server: CacheServer) -> None:
    async with AsyncExitStack() as stack:
        holder, *writers = [await stack.enter_async_context(Client(server.address)) for _ in range(9)]
        keys = [b"k%d" % number for number in range(len(writers))]
        for _ in range(2):
            await holder.get_many(keys)
        for value in (b"1", b"2", b"3", b"4"):
            writes = zip(writers, keys, strict=True)
            await asyncio.gather(*(writer.put(key, value) for writer, key in writes))
            assert await holder.get_many(keys) == dict.fromkeys(keys, value)
        assert holder.statistics().callbacks <= 4 * 4, "of 32 writes"
