"""Watches: ranges, past and present, filters, previous pairs, progress, and compaction."""

from __future__ import annotations

import asyncio

from leasehold.mvcc.errors import Code, Compacted, StoreError
from leasehold.mvcc.model import DeleteRange, EventType, Op, Put, Range, Txn, WatchFilter
from leasehold.testing.conformance.kit import PATIENCE_S, Kit, NotConforming, expect


async def a_watch_reports_events_from_now_on(kit: Kit) -> None:
    await kit.put("a", "before")
    async with kit.coord.watch(kit.key("a")) as stream:
        start = await stream.ready(PATIENCE_S)
        revision = await kit.put("a", "1")
        expect(start, revision)
        await kit.put("b")
        await kit.coord.delete(kit.key("a"))
        first, second = await kit.events(stream, 2)
    kv = first.kv
    expect((first.type, kv.value, kv.mod_revision, kv.version), (EventType.PUT, b"1", revision, 2))
    expect((second.type, second.kv.key, second.kv.mod_revision), (EventType.DELETE, kit.key("a"), revision + 2))
    expect((second.kv.value, second.kv.version, second.kv.create_revision), (b"", 0, 0), "a deletion says no more")


async def a_watch_of_a_range_reports_all_keys_in_it(kit: Kit) -> None:
    async with kit.coord.watch(kit.key("b"), kit.key("d")) as stream:
        await stream.ready(PATIENCE_S)
        await kit.fill("a", "b", "c", "d", "cc")
        expect(kit.brief(await kit.events(stream, 3)), ["+b", "+c", "+cc"])


async def a_watch_can_start_in_the_past(kit: Kit) -> None:
    start = await kit.put("a", "1")
    await kit.put("b", "2")
    await kit.coord.delete(kit.key("a"))
    async with kit.coord.watch(kit.prefix, kit.end, start_revision=start) as stream:
        expect(await stream.ready(PATIENCE_S), start)
        expect(kit.brief(await kit.events(stream, 3)), ["+a", "+b", "-a"])
        await kit.put("c")
        expect(kit.brief(await kit.events(stream, 1)), ["+c"])


async def a_watch_can_start_in_the_future(kit: Kit) -> None:
    now = await kit.put("a")
    async with kit.coord.watch(kit.prefix, kit.end, start_revision=now + 3) as stream:
        await stream.ready(PATIENCE_S)
        await kit.fill("b", "c", "d")
        expect(kit.brief(await kit.events(stream, 1)), ["+d"])


async def a_transaction_arrives_in_one_batch(kit: Kit) -> None:
    await kit.put("gone")
    async with kit.coord.watch(kit.prefix, kit.end) as stream:
        await stream.ready(PATIENCE_S)
        nested = Txn((), (Put(kit.key("c")),))
        ops: list[Op] = [
            Put(kit.key("b")),
            Range(kit.key("b")),
            DeleteRange(kit.key("gone")),
            nested,
            Put(kit.key("a")),
        ]
        result = await kit.coord.txn((), ops)
        batch = await asyncio.wait_for(anext(aiter(stream)), PATIENCE_S)
    expect(kit.brief(list(batch.events)), ["+b", "-gone", "+c", "+a"])
    expect({event.kv.mod_revision for event in batch.events}, {result.header.revision})


async def a_watch_returns_the_previous_pair_on_request(kit: Kit) -> None:
    await kit.put("a", "1")
    before = await kit.one("a")
    async with (
        kit.coord.watch(kit.key("a"), prev_kv=True) as stream,
        kit.coord.watch(kit.key("a")) as plain,
    ):
        await stream.ready(PATIENCE_S)
        await plain.ready(PATIENCE_S)
        await kit.put("a", "2")
        between = await kit.one("a")
        await kit.coord.delete(kit.key("a"))
        expect([event.prev_kv for event in await kit.events(stream, 2)], [before, between])
        expect([event.prev_kv for event in await kit.events(plain, 2)], [None, None])


async def a_watch_can_leave_out_puts_or_deletions(kit: Kit) -> None:
    async with (
        kit.coord.watch(kit.prefix, kit.end, filters=[WatchFilter.NO_PUT]) as deletions,
        kit.coord.watch(kit.prefix, kit.end, filters=[WatchFilter.NO_DELETE]) as puts,
    ):
        await deletions.ready(PATIENCE_S)
        await puts.ready(PATIENCE_S)
        await kit.put("a")
        await kit.coord.delete(kit.key("a"))
        await kit.put("b")
        await kit.coord.delete(kit.key("b"))
        expect(kit.brief(await kit.events(deletions, 2)), ["-a", "-b"])
        expect(kit.brief(await kit.events(puts, 2)), ["+a", "+b"])


async def the_expiry_of_a_lease_is_watched(kit: Kit) -> None:
    lease = await kit.coord.lease_grant(60)
    async with kit.coord.watch(kit.prefix, kit.end) as stream:
        await stream.ready(PATIENCE_S)
        await kit.put("a", lease=lease.id)
        await kit.put("b", lease=lease.id)
        await kit.coord.lease_revoke(lease.id)
        events = await kit.events(stream, 4)
    expect(sorted(kit.brief(events)[2:]), ["-a", "-b"])
    expect(events[2].kv.mod_revision, events[3].kv.mod_revision, "in one revision")


async def many_watches_live_side_by_side(kit: Kit) -> None:
    names = [f"{number:02}" for number in range(30)]
    streams = [kit.coord.watch(kit.key(name)) for name in names]
    for stream in streams:
        await stream.ready(PATIENCE_S)
    await kit.fill(*names)
    for name, stream in zip(names, streams, strict=True):
        expect(kit.brief(await kit.events(stream, 1)), ["+" + name])
        await stream.close()


async def a_closed_watch_ends(kit: Kit) -> None:
    stream = kit.coord.watch(kit.key("a"))
    await stream.ready(PATIENCE_S)
    waiting = asyncio.ensure_future(anext(aiter(stream), None))
    await asyncio.sleep(0)
    await stream.close()
    expect(await asyncio.wait_for(waiting, PATIENCE_S), None)
    await kit.put("a")
    expect(await anext(aiter(stream), None), None)


async def a_large_transaction_arrives_whole_in_fragments_or_not(kit: Kit) -> None:
    # Written by one transaction, but together more than one gRPC message of 4 MiB would hold with previous pairs.
    for fragment in (False, True):
        stream = kit.coord.watch(kit.prefix, kit.end, fragment=fragment, prev_kv=True)
        await stream.ready(PATIENCE_S)
        value = bytes(10_000)
        result = await kit.coord.txn((), [Put(kit.key(f"{number:03}"), value) for number in range(100)])
        batch = await asyncio.wait_for(anext(aiter(stream)), PATIENCE_S)
        expect((len(batch.events), batch.events[-1].kv.mod_revision), (100, result.header.revision))
        await stream.close()


async def a_compacted_start_is_reported_with_the_revision(kit: Kit) -> None:
    first = await kit.put("a", "1")
    last = await kit.put("a", "2")
    await kit.coord.compact(last)
    stream = kit.coord.watch(kit.key("a"), start_revision=first)
    try:
        await asyncio.wait_for(anext(aiter(stream)), PATIENCE_S)
    except Compacted as error:
        expect(error.compact_revision >= last, True, f"got {error.compact_revision}")
    else:
        raise NotConforming("a watch of compacted history was served")
    async with kit.coord.watch(kit.key("a"), start_revision=last + 1) as later:
        await kit.put("a", "3")
        expect(kit.brief(await kit.events(later, 1)), ["+a"])


async def compaction_forgets_the_past_only(kit: Kit) -> None:
    first = await kit.put("a", "1")
    await kit.put("b", "1")
    last = await kit.put("a", "2")
    await kit.coord.compact(last)
    call = kit.coord.get(kit.key("a"), revision=first)
    compacted = "etcdserver: mvcc: required revision has been compacted"
    await kit.refuses(call, compacted, Code.OUT_OF_RANGE)
    expect([(await kit.one(name)).value for name in "ab"], [b"2", b"1"])
    expect((await kit.coord.get(kit.key("a"), revision=last)).kvs[0].value, b"2")
    await kit.refuses(kit.coord.compact(last), compacted, Code.OUT_OF_RANGE)
    future = "etcdserver: mvcc: required revision is a future revision"
    await kit.refuses(kit.coord.compact(last + 1_000_000), future, Code.OUT_OF_RANGE)
    await kit.put("c")
    await kit.coord.compact((await kit.one("c")).mod_revision, physical=True)


async def a_watch_of_an_empty_range_is_refused(kit: Kit) -> None:
    """At the call or at the first read: a client need not wait for its store to say so."""
    try:
        stream = kit.coord.watch(kit.key("b"), kit.key("a"))
        await asyncio.wait_for(anext(aiter(stream)), PATIENCE_S)
    except StoreError as error:
        expect("mvcc: watcher range is empty" in error.message, True, f"got {error.message}")
    else:
        raise NotConforming("a watch of an empty range was taken")
