"""Leases: granted, renewed, revoked, expired; and the keys that hang on them."""

from __future__ import annotations

import asyncio
import secrets

from leasehold.mvcc.errors import Code
from leasehold.testing.conformance.kit import PATIENCE_S, Kit, expect, slow

MISSING = "etcdserver: requested lease not found"


def some_id() -> int:
    return secrets.randbelow(1 << 62) + 1


async def a_grant_may_choose_its_id(kit: Kit) -> None:
    lease_id = some_id()
    result = await kit.coord.lease_grant(60, lease_id)
    expect((result.id, result.ttl_s), (lease_id, 60))
    call = kit.coord.lease_grant(60, lease_id)
    await kit.refuses(call, "etcdserver: lease already exists", Code.FAILED_PRECONDITION)
    chosen = await kit.coord.lease_grant(60)
    expect(chosen.id not in (0, lease_id), True, "an id chosen by the store")
    await kit.coord.lease_revoke(lease_id)
    await kit.coord.lease_revoke(chosen.id)


async def a_lease_too_long_is_refused(kit: Kit) -> None:
    call = kit.coord.lease_grant(9_000_000_001)
    await kit.refuses(call, "etcdserver: too large lease TTL", Code.OUT_OF_RANGE)


async def revoking_deletes_the_keys_in_one_revision(kit: Kit) -> None:
    lease = await kit.coord.lease_grant(60)
    await kit.put("a", lease=lease.id)
    last = await kit.put("b", lease=lease.id)
    expect((await kit.one("a")).lease, lease.id)
    revoked = await kit.coord.lease_revoke(lease.id)
    expect(revoked.header.revision, last + 1)
    expect((await kit.exists("a"), await kit.exists("b")), (False, False))
    await kit.refuses(kit.coord.lease_revoke(lease.id), MISSING, Code.NOT_FOUND)


async def a_key_hangs_on_the_lease_of_its_last_write(kit: Kit) -> None:
    first, second = await kit.coord.lease_grant(60), await kit.coord.lease_grant(60)
    for name in ("moved", "freed"):
        await kit.put(name, lease=first.id)
    await kit.put("moved", lease=second.id)
    await kit.put("freed")
    await kit.coord.lease_revoke(first.id)
    expect((await kit.exists("moved"), await kit.exists("freed")), (True, True))
    await kit.coord.lease_revoke(second.id)
    expect((await kit.exists("moved"), await kit.exists("freed")), (False, True))


async def a_key_needs_a_lease_that_is_there(kit: Kit) -> None:
    await kit.refuses(kit.coord.put(kit.key("a"), lease=some_id()), MISSING, Code.NOT_FOUND)
    expect(await kit.exists("a"), False)


async def time_to_live_returns_keys(kit: Kit) -> None:
    lease = await kit.coord.lease_grant(60)
    await kit.put("b", lease=lease.id)
    await kit.put("a", lease=lease.id)
    found = await kit.coord.lease_time_to_live(lease.id, keys=True)
    expect((found.id, found.granted_ttl_s, sorted(found.keys)), (lease.id, 60, [kit.key("a"), kit.key("b")]))
    expect(40 <= found.ttl_s <= 60, True, f"remaining TTL, {found.ttl_s}")
    expect((await kit.coord.lease_time_to_live(lease.id)).keys, ())
    await kit.coord.lease_revoke(lease.id)
    gone = await kit.coord.lease_time_to_live(lease.id, keys=True)
    expect((gone.id, gone.ttl_s, gone.granted_ttl_s, gone.keys), (lease.id, -1, 0, ()))


async def leases_are_listed(kit: Kit) -> None:
    lease = await kit.coord.lease_grant(60)
    expect(lease.id in (await kit.coord.leases()).leases, True)
    await kit.coord.lease_revoke(lease.id)
    expect(lease.id in (await kit.coord.leases()).leases, False)


async def a_renewal_restarts_the_term(kit: Kit) -> None:
    lease = await kit.coord.lease_grant(60)
    renewed = await kit.coord.lease_keep_alive_once(lease.id)
    expect((renewed.id, renewed.ttl_s), (lease.id, 60))
    await kit.coord.lease_revoke(lease.id)
    gone = await kit.coord.lease_keep_alive_once(lease.id)
    expect((gone.id, gone.ttl_s <= 0), (lease.id, True))


@slow
async def a_lease_expires_with_its_keys(kit: Kit) -> None:
    sent_ms = kit.coord.now_ms()
    lease = await kit.coord.lease_grant(2)
    await kit.put("a", lease=lease.id)

    async def gone() -> bool:
        return not await kit.exists("a")

    await kit.becomes(gone, "the key of an expired lease is deleted")
    lived_ms = kit.coord.now_ms() - sent_ms
    expect(lived_ms >= lease.ttl_s * 1_000, True, f"it lived for its term, not for {lived_ms} ms")
    expect((await kit.coord.lease_time_to_live(lease.id)).ttl_s, -1)


@slow
async def keep_alive_keeps_a_lease_until_closed(kit: Kit) -> None:
    sent_ms = kit.coord.now_ms()
    lease = await kit.coord.lease_grant(3)
    await kit.put("a", lease=lease.id)
    keeper = kit.coord.keep_alive(lease.id, lease.ttl_s, sent_ms)
    expect((keeper.lease_id, keeper.lost), (lease.id, False))
    first_deadline_ms = keeper.deadline_ms
    await asyncio.sleep(lease.ttl_s + 1)
    expect((await kit.exists("a"), keeper.lost), (True, False))
    expect(keeper.deadline_ms > max(first_deadline_ms, kit.coord.now_ms()), True, "the deadline moves on")
    keeper.close()
    keeper.close()

    async def gone() -> bool:
        return not await kit.exists("a")

    await kit.becomes(gone, "a lease that is no longer renewed expires")


@slow
async def one_lease_may_be_kept_by_several(kit: Kit) -> None:
    sent_ms = kit.coord.now_ms()
    lease = await kit.coord.lease_grant(3)
    await kit.put("a", lease=lease.id)
    first = kit.coord.keep_alive(lease.id, lease.ttl_s, sent_ms)
    second = kit.coord.keep_alive(lease.id, lease.ttl_s, sent_ms)
    second.close()
    await asyncio.sleep(lease.ttl_s + 1)
    expect((await kit.exists("a"), first.lost), (True, False), "until the last of them stops")
    expect(first.deadline_ms > kit.coord.now_ms(), True, "the first one's deadline moves on")
    first.close()


@slow
async def keep_alive_reports_a_lost_lease(kit: Kit) -> None:
    sent_ms = kit.coord.now_ms()
    lease = await kit.coord.lease_grant(3)
    keeper = kit.coord.keep_alive(lease.id, lease.ttl_s, sent_ms)
    reported = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell() -> None:
        loop.call_soon_threadsafe(reported.set)

    keeper.on_change(tell)
    await kit.coord.lease_revoke(lease.id)

    async def lost() -> bool:
        return keeper.lost

    await kit.becomes(lost, "a revoked lease is reported lost")
    await asyncio.wait_for(reported.wait(), PATIENCE_S)
    keeper.close()
