"""Edge cases of the client: bad arguments, large batches, concurrent callers, authorities that do not serve."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import leasehold
from leasehold.base import limits
from leasehold.base.errors import CallerError, InvalidArgument, Unavailable
from leasehold.cache import (
    Authority,
    AuthoritySettings,
    CacheServer,
    Client,
    ClientSettings,
    CoordStore,
    Expired,
    MemoryStore,
    SyncClient,
    TokenRefused,
    Version,
)
from leasehold.cache.client_links import LocalLink, WireLink
from leasehold.cache.entries import Entries
from leasehold.cache.model import ABSENT, Answer, Item
from leasehold.cache.wire_functions import decode_from_authority, packed
from leasehold.testing.waiting import until


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[CacheServer]:
    authority = await Authority.open(MemoryStore(), AuthoritySettings(**settings))
    served = CacheServer()
    served.install(authority)
    try:
        yield served
    finally:
        await authority.close(drain_s=0.05)
        served.close()


@pytest.fixture
async def server() -> AsyncIterator[CacheServer]:
    async with serving(term_ms=60_000) as served:
        yield served


async def test_arguments_that_are_not_bytes_are_refused_before_sending(server: CacheServer) -> None:
    """It ended as an unknown outcome; None deleted the key, and a bytearray was kept though its owner may change it."""
    async with Client(server.address) as client:
        await client.put(b"k", b"1")
        for call in (
            lambda: client.put("k", b""),  # type: ignore[arg-type]  # the point, here and below
            lambda: client.put(b"k", "text"),  # type: ignore[arg-type]
            lambda: client.put(b"k", None),  # type: ignore[arg-type]
            lambda: client.put(b"k", bytearray(b"1")),  # type: ignore[arg-type]
            lambda: client.put(b"k", b"", timeout_s=math.nan),
            lambda: client.put(b"k", b"", timeout_s=math.inf),
            lambda: client.put(b"k", b"", expect=(1, 1)),  # type: ignore[arg-type]
            lambda: client.delete("k"),  # type: ignore[arg-type]
            lambda: client.subscribe("k").__aenter__(),  # type: ignore[arg-type]
            lambda: client.subscribe(b"k" * 5_000).__aenter__(),
        ):
            with pytest.raises(InvalidArgument):
                await call()
        assert await client.get(b"k") == b"1"


async def test_many_keys_are_read_in_several_requests(server: CacheServer) -> None:
    async with Client(server.address) as client:
        keys = [b"k%d" % number for number in range(2_500)]
        assert await client.get_many(keys) == dict.fromkeys(keys)


async def test_large_values_may_be_written_together(server: CacheServer) -> None:
    """Everything of one turn went in one frame, and one that was too large ended the connection."""
    async with Client(server.address, ClientSettings(timeout_ms=60_000)) as writer:
        value = b"x" * 1024 * 1024
        await asyncio.gather(*(writer.put(b"k%d" % number, value) for number in range(80)))


def test_large_messages_to_a_client_are_split_to_its_limit() -> None:
    item = Item(b"k", b"x" * 1024 * 1024, ABSENT)
    bodies = packed([Answer(seq, (item,)) for seq in range(40)])
    assert len(bodies) > 1
    assert all(len(body) <= limits.cache_parcel_bytes for body in bodies)
    answers = [answer for body in bodies for answer in decode_from_authority(body)]
    assert [answer.seq for answer in answers if isinstance(answer, Answer)] == list(range(40))
    assert (1024 * 1024 + 5_000) * limits.cache_keys_per_ask_max < limits.wire_frame_bytes_max


async def test_two_concurrent_callers_find_the_serving_authority(server: CacheServer) -> None:
    """Each skipped an address, so two of them returned to the one that does not serve, without end."""
    idle = CacheServer()
    try:
        async with Client([idle.address, server.address], ClientSettings(timeout_ms=20_000)) as client:
            started = time.monotonic()
            await asyncio.gather(client.get(b"a"), client.get(b"b"))
            assert time.monotonic() - started < 10
    finally:
        idle.close()


def reached(client: Client) -> str:
    link = client._connector.link
    return link._channel.address if isinstance(link, WireLink) else ""


async def test_a_subscription_finds_the_serving_authority(server: CacheServer) -> None:
    idle = CacheServer()
    try:
        async with (
            Client([idle.address, server.address]) as client,
            client.subscribe(b"conf/") as changes,
            Client(server.address) as writer,
        ):
            await writer.put(b"conf/a", b"1")
            assert (await asyncio.wait_for(anext(changes), 20)).key == b"conf/a"
    finally:
        idle.close()


async def test_a_subscription_follows_a_failover_without_other_requests() -> None:
    """After a failover an authority that did not serve yet refused it, and it waited there without end."""
    first, second = CacheServer(), CacheServer()
    authority = await Authority.open(MemoryStore())
    first.install(authority)
    try:
        async with Client([first.address, second.address]) as client, client.subscribe(b"conf/") as changes:
            client._connector.leave()  # to the second, where no authority serves
            assert (await asyncio.wait_for(anext(changes), 20)).missed
            async with Client(first.address) as writer:
                await until(lambda: reached(client) == first.address, "it is back at the first")
                await client.connected(20)
                await until(lambda: authority.machine.subscriptions._count == 1, "it is subscribed")
                await writer.put(b"conf/a", b"1")
                while (change := await asyncio.wait_for(anext(changes), 20)).missed:
                    pass
                assert change.key == b"conf/a"
    finally:
        await authority.close(drain_s=0.05)
        first.close()
        second.close()


async def test_a_long_write_does_not_hold_up_the_timeouts_of_reads() -> None:
    """One timer was set, for the deadline of the write, and the read that came later waited for it, too."""
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    client = Client(f"127.0.0.1:{port}", ClientSettings(timeout_ms=300))
    try:
        write = asyncio.ensure_future(client.put(b"k", b"1", timeout_s=3_600))
        await until(lambda: bool(client.machine._writes.by_request), "the write is on its way")
        with pytest.raises(Unavailable):
            await asyncio.wait_for(client.get(b"other"), 20)
        write.cancel()
    finally:
        await client.close()
        silent.close()


async def test_a_call_that_waits_for_an_authority_fails_when_the_client_is_closed() -> None:
    """It looked as if the caller itself had been cancelled."""
    client = Client("127.0.0.1:1")
    asking = asyncio.ensure_future(client.get(b"k"))
    await until(lambda: client._connector._dialing is not None, "it dials")
    await client.close()
    with pytest.raises(CallerError):
        await asyncio.wait_for(asking, 20)


async def test_a_closed_client_keeps_nothing_that_arrives_late() -> None:
    """It has released its leases, so writers no longer wait for it."""
    authority = await Authority.open(MemoryStore(), AuthoritySettings(term_ms=60_000))
    client = Client(authority)
    async with Client(authority) as other:
        await other.put(b"k", b"1")
        await client.connected(20)
        asking = asyncio.ensure_future(client.get(b"k"))
        link = client._connector.link
        assert isinstance(link, LocalLink)
        for _ in range(100):  # turns of the loop, until the answer is on its way and not there yet
            if not link._incoming:
                await asyncio.sleep(0)
        assert link._incoming
        await client.close()
        await asyncio.wait([asking])
        await asyncio.sleep(0)
        await other.put(b"k", b"2")
        assert client.get_local(b"k") is None
        with pytest.raises(CallerError):
            await client.get(b"k")
    await authority.close()


async def test_many_writes_of_one_key_are_done_though_they_wait_for_one_holder() -> None:
    """Each began inside the end of the one before: the recursion was as deep as the queue."""
    async with serving(term_ms=300) as server, Client(server.address) as writer:
        silent = Client(server.address)
        await silent.get(b"k")
        silent._connector.closed = True
        silent._connector.link.close()  # type: ignore[union-attr]  # without a message
        versions = await asyncio.gather(*(writer.put(b"k", b"%d" % n, timeout_s=60) for n in range(900)))
        assert len(set(versions)) == 900
        assert await writer.get(b"k") == b"899"


async def test_absent_keys_do_not_fill_a_cache_in_memory() -> None:
    async with serving(term_ms=10_000, entries_max=3) as server, Client(server.address) as client:
        await client.get_many([b"absent%d" % number for number in range(10)])
        for number in range(3):
            await client.put(b"k%d" % number, b"v")
        for number in range(20):
            with pytest.raises(Unavailable):
                await client.put(b"more%d" % number, b"v")
        authority = server._authority
        assert authority is not None
        assert len(authority.machine.keys) <= 3
        assert await client.get(b"k0") == b"v"


def test_threads_may_share_a_sync_client_whose_memory_is_full() -> None:
    """Other threads change the order of use while the loop's thread searches the oldest entry, or counts hits."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> CacheServer:
        served = CacheServer()
        served.install(await Authority.open(MemoryStore(), AuthoritySettings(term_ms=60_000)))
        return served

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    client = SyncClient(server.address, ClientSettings(entries_max=100, timeout_ms=20_000))
    errors: list[BaseException] = []
    done = threading.Event()

    def read_the_same() -> None:
        try:
            while not done.is_set():
                for number in range(20):
                    client.get(b"k%d" % number)
                client.statistics()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read_the_same) for _ in range(2)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that threads meet half way
    for each in threads:
        each.start()
    try:
        for number in range(500):
            client.get(b"new%d" % number)
    finally:
        done.set()
        sys.setswitchinterval(interval_s)
        for each in threads:
            each.join()
        client.close()
        loop.call_soon_threadsafe(loop.stop)
    assert not errors


async def test_a_write_whose_time_ran_out_is_known_not_to_have_happened() -> None:
    """Its writer gave up just before the authority answered, and was left with an unknown outcome."""
    async with serving(term_ms=60_000) as server, Client(server.address) as holder, Client(server.address) as writer:
        await holder.get(b"k")
        with pytest.raises(Expired):
            await writer.put(b"k", b"2", mode="wait", timeout_s=0.2)
        assert await writer.get(b"k") is None


def test_a_refill_too_large_to_be_kept_takes_nobodys_place() -> None:
    entries = Entries(entries_max=10, bytes_max=1_000)
    for key in (b"a", b"b"):
        entries.keep(key, b"", ABSENT, 100)
    before = entries.by_key[b"b"]
    entries.call_back(before, 1, 0)
    entries.refill(b"b", before, b"x" * 2_000, ABSENT, 100)
    assert list(entries.by_key) == [b"a"]
    assert entries.bytes == entries.by_key[b"a"].cost_bytes


async def test_lowering_the_maximum_lease_term_does_not_depose_the_authority(prefix: bytes) -> None:
    """The fence is the state's revision, which the authority itself changes: a concurrent store was refused."""
    async with await leasehold.connect("memory://") as coord:
        await CoordStore(coord, prefix).open(5_000)
        store = CoordStore(coord, prefix)
        opened = await store.open(1_000)
        await asyncio.gather(
            store.settle_term(1_000), *(store.store(b"k%d" % n, b"v", Version(opened.epoch, n)) for n in range(1, 20))
        )
        unheard = CoordStore(coord, prefix)
        opened = await unheard.open(1_000)
        fence = unheard._fence_revision
        await unheard.settle_term(500)
        unheard._fence_revision = fence  # as if its answer had been lost
        await unheard.store(b"k", b"v", Version(opened.epoch, 1))
        await CoordStore(coord, prefix).open(1_000)
        with pytest.raises(TokenRefused):
            await unheard.store(b"k", b"w", Version(opened.epoch, 2))
