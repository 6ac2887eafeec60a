"""The server lease tests of etcd's own suite, by their names, on the embedded store.

Where etcd's tests change the leader or fail over, these kill and restart the store. TTLs are the shortest that the
store grants: 2 s.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.store.support import crash, opened

import leasehold
from leasehold.coord.api import Coord
from leasehold.mvcc.errors import LeaseExists, LeaseNotFound
from leasehold.mvcc.model import EventType
from leasehold.store.client import LocalClient
from leasehold.store.opening import open_folder
from leasehold.testing.store import StoreProcess
from leasehold.testing.waiting import until

TTL_S = 2
SLACK_S = 20  # for a machine that is busy with other tests: only the expiry is tested, not its time


async def key_gone_after(client: Coord, key: bytes, start_revision: int) -> float:
    """Wait until `key` is deleted; when that was seen."""
    async with asyncio.timeout(60), client.watch(key, start_revision=start_revision) as watch:
        async for batch in watch:
            if any(event.type == EventType.DELETE for event in batch.events):
                return time.monotonic()
    raise AssertionError("the watch ended")


async def test_v3_lease_promote(store: StoreProcess) -> None:
    """TestV3LeasePromote: after a change of the one in charge a lease gets a term, and ends."""
    client = await leasehold.connect(store.url)
    grant = await client.lease_grant(TTL_S)
    put = await client.put(b"a", lease=grant.id)
    store.restart()
    begun = time.monotonic()
    gone = await key_gone_after(client, b"a", put.header.revision + 1)
    assert gone - begun < TTL_S + SLACK_S
    await client.close()


async def test_v3_lease_revoke(client: Coord, prefix: bytes) -> None:
    """TestV3LeaseRevoke: revoking deletes the keys."""
    grant = await client.lease_grant(60)
    await client.put(prefix, lease=grant.id)
    await client.lease_revoke(grant.id)
    assert await client.get_one(prefix) is None
    with pytest.raises(LeaseNotFound):
        await client.lease_revoke(grant.id)


async def test_v3_lease_grant_by_id(client: Coord) -> None:
    """TestV3LeaseGrantByID: a chosen id is taken once."""
    chosen = time.monotonic_ns()
    assert (await client.lease_grant(60, chosen)).id == chosen
    with pytest.raises(LeaseExists):
        await client.lease_grant(60, chosen)
    assert (await client.lease_grant(60)).id not in (0, chosen)
    assert (await client.lease_grant(60, chosen + 1)).id == chosen + 1


@pytest.mark.parametrize("lease_id", [-1, -(2**63), 2**63 - 1])
async def test_v3_lease_negative_id(client: Coord, prefix: bytes, lease_id: int) -> None:
    """TestV3LeaseNegativeID: every id but 0 will do."""
    grant = await client.lease_grant(60, lease_id)
    try:
        assert grant.id == lease_id
        await client.put(prefix, lease=lease_id)
        kv = await client.get_one(prefix)
        assert kv is not None
        assert kv.lease == lease_id
    finally:
        await client.lease_revoke(lease_id)
    assert await client.get_one(prefix) is None


async def test_v3_lease_expire(client: Coord, prefix: bytes) -> None:
    """TestV3LeaseExpire: the key is deleted when the lease expires, and a watcher gets the event."""
    begun = time.monotonic()
    grant = await client.lease_grant(1)
    assert grant.ttl_s == TTL_S
    put = await client.put(prefix, lease=grant.id)
    gone = await key_gone_after(client, prefix, put.header.revision + 1)
    assert TTL_S <= gone - begun <= TTL_S + SLACK_S
    assert (await client.lease_time_to_live(grant.id)).ttl_s == -1


async def test_v3_lease_keep_alive(client: Coord, prefix: bytes) -> None:
    """TestV3LeaseKeepAlive: renewals keep the key; for an unknown lease the TTL is 0."""
    begun = time.monotonic()
    grant = await client.lease_grant(TTL_S + 1)
    await client.put(prefix, lease=grant.id)
    while time.monotonic() < begun + grant.ttl_s + 0.5:
        assert (await client.lease_keep_alive_once(grant.id)).ttl_s == grant.ttl_s
        await asyncio.sleep(0.2)
    assert await client.get_one(prefix) is not None
    await client.lease_revoke(grant.id)
    assert (await client.lease_keep_alive_once(grant.id)).ttl_s <= 0


@pytest.mark.alone
async def test_v3_lease_checkpoint(store: StoreProcess) -> None:
    """TestV3LeaseCheckpoint: a restart does not restart the TTL (as it does in etcd without checkpoints)."""
    client = await leasehold.connect(store.url)
    begun = time.monotonic()
    grant = await client.lease_grant(30)
    await asyncio.sleep(4)
    store.restart()
    left = await client.lease_time_to_live(grant.id)
    assert 30 - (time.monotonic() - begun) - 1 <= left.ttl_s <= 28
    assert left.granted_ttl_s == 30
    await client.close()


async def test_v3_lease_exists(client: Coord, prefix: bytes) -> None:
    """TestV3LeaseExists and TestV3PutOnNonExistLease: a put needs a lease that is there."""
    grant = await client.lease_grant(60)
    await client.put(prefix, lease=grant.id)
    await client.lease_revoke(grant.id)
    with pytest.raises(LeaseNotFound):
        await client.put(prefix, lease=grant.id)
    assert await client.get_one(prefix) is None


async def test_v3_get_non_exist_lease(client: Coord) -> None:
    """TestV3GetNonExistLease."""
    answer = await client.lease_time_to_live(123, keys=True)
    assert (answer.ttl_s, answer.granted_ttl_s, answer.keys) == (-1, 0, ())


async def test_v3_lease_leases(client: Coord) -> None:
    """TestV3LeaseLeases: all leases are listed."""
    granted = {(await client.lease_grant(60)).id for _ in range(5)}
    assert granted <= set((await client.leases()).leases)
    for lease_id in granted:
        await client.lease_revoke(lease_id)
    assert not granted & set((await client.leases()).leases)


async def test_v3_lease_renew_stress(client: Coord, prefix: bytes) -> None:
    """TestV3LeaseRenewStress: many concurrent renewals do not lose the lease."""
    grant = await client.lease_grant(60)
    await client.put(prefix, lease=grant.id)

    async def renew() -> None:
        for _ in range(25):
            assert (await client.lease_keep_alive_once(grant.id)).ttl_s == 60

    await asyncio.gather(*(renew() for _ in range(8)))
    assert await client.get_one(prefix) is not None


async def test_v3_lease_switch(client: Coord, prefix: bytes) -> None:
    """TestV3LeaseSwitch: a key hangs on its last lease only."""
    first, second = await client.lease_grant(60), await client.lease_grant(60)
    await client.put(prefix, lease=first.id)
    await client.put(prefix, lease=second.id)
    await client.lease_revoke(first.id)
    assert await client.get_one(prefix) is not None
    await client.lease_revoke(second.id)
    assert await client.get_one(prefix) is None


async def test_v3_lease_failover(store: StoreProcess) -> None:
    """TestV3LeaseFailover: who keeps renewing over a kill keeps the lease."""
    client = await leasehold.connect(store.url)
    grant = await client.lease_grant(4)
    await client.put(b"a", lease=grant.id)
    kept = client.keep_alive(grant.id, grant.ttl_s, client.now_ms())
    store.restart()
    restarted_ms = client.now_ms()
    await until(lambda: kept.deadline_ms > restarted_ms + grant.ttl_s * 1_000, "it is renewed after the restart")
    assert not kept.lost
    assert await client.get_one(b"a") is not None
    kept.close()
    await client.close()


async def test_v3_lease_recover_and_revoke(tmp_path: Path) -> None:
    """TestV3LeaseRecoverAndRevoke: after a crash the lease still has its keys."""
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    grant = await client.lease_grant(60)
    await client.put(b"a", lease=grant.id)
    crash(engine)
    async with opened(tmp_path) as client:
        assert (await client.lease_time_to_live(grant.id, keys=True)).keys == (b"a",)
        await client.lease_revoke(grant.id)
        assert await client.get_one(b"a") is None


async def test_v3_lease_revoke_and_recover(tmp_path: Path) -> None:
    """TestV3LeaseRevokeAndRecover: what was revoked does not come back."""
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    grant = await client.lease_grant(60)
    await client.put(b"a", lease=grant.id)
    await client.lease_revoke(grant.id)
    crash(engine)
    async with opened(tmp_path) as client:
        assert await client.get_one(b"a") is None
        assert (await client.leases()).leases == ()


async def test_v3_lease_recover_key_with_detached_lease(tmp_path: Path) -> None:
    """TestV3LeaseRecoverKeyWithDetachedLease: a key that was freed of its lease stays free."""
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    grant = await client.lease_grant(60)
    await client.put(b"a", lease=grant.id)
    await client.put(b"a")
    crash(engine)
    async with opened(tmp_path) as client:
        await client.lease_revoke(grant.id)
        assert await client.get_one(b"a") is not None


async def test_v3_lease_recover_key_with_multiple_lease(tmp_path: Path) -> None:
    """TestV3LeaseRecoverKeyWithMultipleLease: the last lease counts, also after a crash."""
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    first, second = await client.lease_grant(60), await client.lease_grant(60)
    await client.put(b"a", lease=first.id)
    await client.put(b"a", lease=second.id)
    crash(engine)
    async with opened(tmp_path) as client:
        await client.lease_revoke(first.id)
        assert await client.get_one(b"a") is not None
        await client.lease_revoke(second.id)
        assert await client.get_one(b"a") is None


async def test_v3_lease_time_to_live_with_leader_changed(tmp_path: Path) -> None:
    """TestV3LeaseTimeToLiveWithLeaderChanged: the remaining time is known right after a restart."""
    async with opened(tmp_path) as client:
        grant = await client.lease_grant(60)
    async with opened(tmp_path) as client:
        answer = await client.lease_time_to_live(grant.id)
        assert (answer.granted_ttl_s, answer.ttl_s >= 40) == (60, True)


async def test_time_that_the_store_was_closed_does_not_count(tmp_path: Path) -> None:
    """No client could renew while it was down: a lease expires L + D after its last renewal, not before."""
    async with opened(tmp_path) as client:
        grant = await client.lease_grant(TTL_S)
        put = await client.put(b"a", lease=grant.id)
    await asyncio.sleep(TTL_S + 0.5)
    async with opened(tmp_path) as client:
        assert await client.get_one(b"a") is not None
        begun = time.monotonic()
        gone = await key_gone_after(client, b"a", put.header.revision + 1)
        assert gone - begun <= TTL_S + SLACK_S
