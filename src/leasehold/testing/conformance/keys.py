"""Writing, reading and deleting keys, with all the options."""

from __future__ import annotations

from leasehold.mvcc.errors import Code
from leasehold.mvcc.model import FROM_KEY, SortOrder, SortTarget, prefix_end
from leasehold.testing.conformance.kit import Kit, expect


async def put_then_get_returns_revisions_and_version(kit: Kit) -> None:
    first = await kit.put("a", "1")
    second = await kit.put("a", "2")
    expect(second, first + 1)
    kv = await kit.one("a")
    expect((kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease), (b"2", first, second, 2, 0))


async def a_key_written_again_after_deletion_starts_at_version_1(kit: Kit) -> None:
    await kit.fill("a", "a")
    await kit.coord.delete(kit.key("a"))
    again = await kit.put("a", "x")
    kv = await kit.one("a")
    expect((kv.create_revision, kv.mod_revision, kv.version), (again, again, 1))


async def put_returns_the_previous_pair_on_request(kit: Kit) -> None:
    expect((await kit.coord.put(kit.key("a"), b"1", prev_kv=True)).prev_kv, None)
    before = await kit.one("a")
    expect((await kit.coord.put(kit.key("a"), b"2", prev_kv=True)).prev_kv, before)
    expect((await kit.coord.put(kit.key("a"), b"3")).prev_kv, None)


async def put_can_leave_value_or_lease_as_they_are(kit: Kit) -> None:
    lease = await kit.coord.lease_grant(60)
    await kit.put("a", "kept", lease=lease.id)
    await kit.coord.put(kit.key("a"), b"", ignore_value=True, lease=0)
    kv = await kit.one("a")
    expect((kv.value, kv.lease, kv.version), (b"kept", 0, 2), "ignore_value")
    await kit.put("a", "old", lease=lease.id)
    await kit.coord.put(kit.key("a"), b"new", ignore_lease=True)
    kv = await kit.one("a")
    expect((kv.value, kv.lease), (b"new", lease.id), "ignore_lease")
    await kit.coord.lease_revoke(lease.id)


async def put_that_ignores_needs_the_key_and_nothing_beside(kit: Kit) -> None:
    missing = "etcdserver: key not found"
    await kit.refuses(kit.coord.put(kit.key("no"), ignore_value=True), missing, Code.INVALID_ARGUMENT)
    await kit.refuses(kit.coord.put(kit.key("no"), b"v", ignore_lease=True), missing, Code.INVALID_ARGUMENT)
    await kit.put("a")
    await kit.refuses(
        kit.coord.put(kit.key("a"), b"v", ignore_value=True),
        "etcdserver: value is provided",
        Code.INVALID_ARGUMENT,
    )
    await kit.refuses(
        kit.coord.put(kit.key("a"), b"v", ignore_lease=True, lease=7),
        "etcdserver: lease is provided",
        Code.INVALID_ARGUMENT,
    )


async def empty_keys_are_refused(kit: Kit) -> None:
    message = "etcdserver: key is not provided"
    await kit.refuses(kit.coord.put(b""), message, Code.INVALID_ARGUMENT)
    await kit.refuses(kit.coord.get(b""), message, Code.INVALID_ARGUMENT)
    await kit.refuses(kit.coord.delete(b""), message, Code.INVALID_ARGUMENT)


async def an_over_long_request_is_refused(kit: Kit) -> None:
    call = kit.coord.put(kit.key("big"), bytes(1700 * 1024))
    await kit.refuses(call, "etcdserver: request is too large", Code.INVALID_ARGUMENT)
    await kit.coord.put(kit.key("fits"), bytes(1024 * 1024))
    expect(len((await kit.one("fits")).value), 1024 * 1024)


async def ranges_are_half_open_and_sorted_by_key(kit: Kit) -> None:
    await kit.fill("c", "a", "b", "d")
    expect(kit.names(await kit.coord.get(kit.key("a"), kit.key("c"))), ["a", "b"])
    expect(kit.names(await kit.coord.get(kit.key("b"), kit.end)), ["b", "c", "d"])
    expect(kit.names(await kit.coord.get(kit.key("c"), kit.key("a"))), [], "an end before the start")
    everything = await kit.coord.get(kit.key("c"), FROM_KEY)
    expect(kit.names(everything)[:2], ["c", "d"], "from a key on")


async def a_prefix_is_a_range(kit: Kit) -> None:
    await kit.fill("x", "x1", "x2", "y")
    expect(kit.names(await kit.coord.get(kit.key("x"), prefix_end(kit.key("x")))), ["x", "x1", "x2"])
    await kit.coord.put(kit.prefix + b"z\xff\xff", b"")
    await kit.coord.put(kit.prefix + b"z\xff\xff\x01", b"")
    found = await kit.coord.get(kit.prefix + b"z\xff\xff", prefix_end(kit.prefix + b"z\xff\xff"))
    expect(found.count, 2, "a prefix that ends in 0xff")


async def limits_tell_that_there_is_more(kit: Kit) -> None:
    await kit.fill("a", "b", "c")
    some = await kit.coord.get(kit.prefix, kit.end, limit=2)
    expect((kit.names(some), some.more, some.count), (["a", "b"], True, 3))
    whole = await kit.coord.get(kit.prefix, kit.end, limit=3)
    expect((whole.more, whole.count), (False, 3))


async def reads_can_be_sorted_by_everything(kit: Kit) -> None:
    await kit.put("a", "3")
    await kit.put("b", "1")
    await kit.put("c", "2")
    await kit.put("a", "9")
    wanted = {
        SortTarget.KEY: ["a", "b", "c"],
        SortTarget.VERSION: ["b", "c", "a"],
        SortTarget.CREATE: ["a", "b", "c"],
        SortTarget.MOD: ["b", "c", "a"],
        SortTarget.VALUE: ["b", "c", "a"],
    }
    for target, names in wanted.items():
        up = await kit.coord.get(kit.prefix, kit.end, sort_order=SortOrder.ASCEND, sort_target=target)
        expect(kit.names(up), names, f"ascending by {target.name}")
        down = await kit.coord.get(kit.prefix, kit.end, sort_order=SortOrder.DESCEND, sort_target=target, limit=1)
        expect((kit.names(down), down.more), (names[-1:], True), f"the last by {target.name}")


async def reads_can_be_of_the_past(kit: Kit) -> None:
    first, second = await kit.put("a", "1"), await kit.put("a", "2")
    gone = (await kit.coord.delete(kit.key("a"))).header.revision
    old = await kit.coord.get(kit.key("a"), revision=first)
    expect([kv.value for kv in old.kvs], [b"1"])
    expect([kv.value for kv in (await kit.coord.get(kit.key("a"), revision=second)).kvs], [b"2"])
    expect((await kit.coord.get(kit.key("a"), revision=gone)).kvs, ())
    expect((await kit.coord.get(kit.key("a"), revision=first - 1)).kvs, ())
    expect(old.header.revision >= gone, True, "the header has the current revision")
    call = kit.coord.get(kit.key("a"), revision=old.header.revision + 1_000_000)
    await kit.refuses(call, "etcdserver: mvcc: required revision is a future revision", Code.OUT_OF_RANGE)


async def reads_can_do_without_values_or_keys(kit: Kit) -> None:
    await kit.fill("a", "b")
    keys = await kit.coord.get(kit.prefix, kit.end, keys_only=True)
    expect([(kv.value, kv.version) for kv in keys.kvs], [(b"", 1), (b"", 1)])
    count = await kit.coord.get(kit.prefix, kit.end, count_only=True)
    expect((count.kvs, count.count, count.more), ((), 2, False))


async def reads_can_be_serializable(kit: Kit) -> None:
    await kit.put("a", "1")
    expect((await kit.coord.get(kit.key("a"), serializable=True)).kvs[0].value, b"1")


async def reads_can_be_filtered_by_revision(kit: Kit) -> None:
    a, b, c = await kit.fill("a", "b", "c")
    again = await kit.put("a", "x")
    by_mod = await kit.coord.get(kit.prefix, kit.end, min_mod_revision=c)
    expect((kit.names(by_mod), by_mod.count), (["a", "c"], 3), "the count is of the whole range")
    expect(kit.names(await kit.coord.get(kit.prefix, kit.end, max_mod_revision=c)), ["b", "c"])
    expect(kit.names(await kit.coord.get(kit.prefix, kit.end, min_create_revision=b)), ["b", "c"])
    expect(kit.names(await kit.coord.get(kit.prefix, kit.end, max_create_revision=b)), ["a", "b"])
    both = await kit.coord.get(kit.prefix, kit.end, min_mod_revision=a, max_mod_revision=again - 1)
    expect(kit.names(both), ["b", "c"])


async def delete_returns_the_count_and_the_pairs(kit: Kit) -> None:
    await kit.fill("a", "b", "c")
    before = [await kit.one("a"), await kit.one("b")]
    result = await kit.coord.delete(kit.key("a"), kit.key("c"), prev_kv=True)
    expect((result.deleted, list(result.prev_kvs)), (2, before))
    expect((await kit.coord.delete(kit.key("c"))).prev_kvs, ())
    nothing = await kit.coord.delete(kit.key("a"))
    expect(nothing.deleted, 0)
    expect(nothing.header.revision, result.header.revision + 1, "deleting nothing makes no revision")


async def values_and_keys_may_be_any_bytes(kit: Kit) -> None:
    key, value = kit.prefix + bytes(range(256)), bytes(range(255, -1, -1))
    await kit.coord.put(key, value)
    kv = await kit.coord.get_one(key)
    expect((kv.key, kv.value) if kv else None, (key, value))


async def status_returns_version_and_revision(kit: Kit) -> None:
    revision = await kit.put("a")
    status = await kit.coord.status()
    expect(status.header.revision >= revision, True)
    expect(bool(status.version) and status.leader != 0, True, "a version and a leader")
