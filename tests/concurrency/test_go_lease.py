"""The original's tests of the lease client, under their own names."""

from __future__ import annotations

import asyncio

import pytest
from tests.concurrency.helpers import PATIENCE_S

from leasehold.base.errors import LeaseholdError, Unavailable, UnknownOutcome
from leasehold.concurrency import Session, SessionLost, SessionState
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.coord.errors import ClientClosed
from leasehold.mvcc.errors import LeaseNotFound
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.process import wait_until
from leasehold.testing.waiting import until

GONE = 0x7FFFFFFF_00000001


async def test_lease_not_found_error(coord: Coord) -> None:
    """TestLeaseNotFoundError: a key cannot be put under a lease that is not there."""
    with pytest.raises(LeaseNotFound):
        await coord.put(b"foo", b"bar", lease=500)


async def test_lease_grant(coord: Coord, name: str) -> None:
    """TestLeaseGrant: keys can be put under a granted lease."""
    lease = await coord.lease_grant(10)
    await coord.put(name.encode(), b"bar", lease=lease.id)
    assert (await coord.lease_time_to_live(lease.id, keys=True)).keys == (name.encode(),)
    await coord.lease_revoke(lease.id)


async def test_lease_revoke(coord: Coord, name: str) -> None:
    """TestLeaseRevoke: a revoked lease takes its keys with it and cannot be used again."""
    lease = await coord.lease_grant(10)
    await coord.put(name.encode(), b"bar", lease=lease.id)
    await coord.lease_revoke(lease.id)
    assert await coord.get_one(name.encode()) is None
    with pytest.raises(LeaseNotFound):
        await coord.put(name.encode(), b"bar", lease=lease.id)


async def test_lease_keep_alive_once(coord: Coord) -> None:
    """TestLeaseKeepAliveOnce"""
    lease = await coord.lease_grant(10)
    assert (await coord.lease_keep_alive_once(lease.id)).ttl_s == 10
    await coord.lease_revoke(lease.id)
    with pytest.raises(LeaseNotFound):
        await keep_once(coord, lease.id)


async def keep_once(coord: Coord, lease_id: int) -> None:
    """An expired lease is reported by a TTL of 0, or as an error."""
    if (await coord.lease_keep_alive_once(lease_id)).ttl_s <= 0:
        raise LeaseNotFound


async def test_lease_keep_alive(coord: Coord) -> None:
    """TestLeaseKeepAlive: renewals go on by themselves until closed, and not after."""
    lease = await coord.lease_grant(4)
    keeping = coord.keep_alive(lease.id, lease.ttl_s, coord.now_ms())
    first = keeping.deadline_ms
    await until(lambda: keeping.deadline_ms > first)
    keeping.close()
    keeping.close()
    await coord.lease_revoke(lease.id)
    assert not keeping.lost


async def test_lease_keep_alive_seconds(coord: Coord, name: str) -> None:
    """TestLeaseKeepAliveOneSecond, TestLeaseKeepAliveSeconds: a short lease outlives its TTL, kept alive.

    Not the shortest: a busy machine may pause for a second and a half.
    """
    lease = await coord.lease_grant(4)
    await coord.put(name.encode(), b"bar", lease=lease.id)
    keeping = coord.keep_alive(lease.id, lease.ttl_s, coord.now_ms())
    await asyncio.sleep(lease.ttl_s + 1)
    assert await coord.get_one(name.encode()) is not None
    keeping.close()
    await coord.lease_revoke(lease.id)


async def test_lease_keep_alive_not_found(coord: Coord) -> None:
    """TestLeaseKeepAliveNotFound: of several leases one has expired; only that one is reported lost."""
    alive, gone = await coord.lease_grant(6), await coord.lease_grant(6)
    keeping = [coord.keep_alive(lease.id, lease.ttl_s, coord.now_ms()) for lease in (alive, gone)]
    await coord.lease_revoke(gone.id)
    await until(lambda: keeping[1].lost)
    assert not keeping[0].lost
    assert (await coord.lease_time_to_live(alive.id)).ttl_s > 0
    for kept in keeping:
        kept.close()


async def test_lease_grant_err_conn_closed(url: str) -> None:
    """TestLeaseGrantErrConnClosed, TestLeaseGrantNewAfterClose: a closed client fails, and does not hang."""
    coord = await connect(url)
    await coord.close()
    with pytest.raises(ClientClosed):
        await asyncio.wait_for(coord.lease_grant(5), PATIENCE_S)


async def test_lease_revoke_new_after_close(url: str) -> None:
    """TestLeaseRevokeNewAfterClose"""
    coord = await connect(url)
    lease = await coord.lease_grant(5)
    await coord.close()
    with pytest.raises(ClientClosed):
        await asyncio.wait_for(coord.lease_revoke(lease.id), PATIENCE_S)


async def test_lease_keep_alive_full_response_queue(coord: Coord) -> None:
    """TestLeaseKeepAliveFullResponseQueue: no task reads the answers, renewals continue: there is no queue to fill."""
    lease = await coord.lease_grant(4)
    keeping = coord.keep_alive(lease.id, lease.ttl_s, coord.now_ms())
    renewals = 0

    def count() -> None:
        nonlocal renewals
        renewals += 1

    keeping.on_change(count)
    # The event loop is blocked: renewals come from a thread.
    wait_until(lambda: renewals >= 1, "it is renewed")
    assert not keeping.lost
    keeping.close()


async def test_lease_time_to_live(coord: Coord, name: str) -> None:
    """TestLeaseTimeToLive: keys, granted and remaining time."""
    lease = await coord.lease_grant(60)
    keys = tuple(f"{name}/{letter}".encode() for letter in "abc")
    for key in keys:
        await coord.put(key, b"", lease=lease.id)
    found = await coord.lease_time_to_live(lease.id, keys=True)
    assert (set(found.keys), found.granted_ttl_s) == (set(keys), 60)
    assert 40 <= found.ttl_s <= 60
    assert (await coord.lease_time_to_live(lease.id)).keys == ()
    await coord.lease_revoke(lease.id)


async def test_lease_time_to_live_lease_not_found(coord: Coord) -> None:
    """TestLeaseTimeToLiveLeaseNotFound: -1 says that it is not there."""
    assert (await coord.lease_time_to_live(GONE)).ttl_s == -1


async def test_lease_leases(coord: Coord) -> None:
    """TestLeaseLeases"""
    granted = [(await coord.lease_grant(10)).id for _ in range(5)]
    assert set(granted) <= set((await coord.leases()).leases)
    for lease_id in granted:
        await coord.lease_revoke(lease_id)


async def test_lease_keep_alive_loop_exit(url: str) -> None:
    """TestLeaseKeepAliveLoopExit: renewing through a closed client is refused, and ends nothing else."""
    coord = await connect(url)
    lease = await coord.lease_grant(5)
    await coord.close()
    with pytest.raises(ClientClosed):
        coord.keep_alive(lease.id, lease.ttl_s, coord.now_ms())


async def test_lease_keep_alive_close_after_disconnect_revoke() -> None:
    """TestLeaseKeepAliveCloseAfterDisconnectRevoke: the server goes away; revoke and close end in time."""
    with EtcdCluster(1) as cluster:
        coord = await connect(cluster.url, timeout_s=1)
        session = await Session.open(coord, ttl_s=5)
        cluster.nodes[0].kill()
        with pytest.raises((Unavailable, UnknownOutcome)):
            await coord.lease_revoke(session.lease_id, timeout_s=1)
        await asyncio.wait_for(session.close(timeout_s=1), PATIENCE_S)
        await asyncio.wait_for(coord.close(), PATIENCE_S)


async def test_lease_keep_alive_init_timeout() -> None:
    """TestLeaseKeepAliveInitTimeout: with no server to be reached, nothing is ever claimed to be alive."""
    with EtcdCluster(1) as cluster:
        coord = await connect(cluster.url, timeout_s=1)
        lease = await coord.lease_grant(2)
        cluster.nodes[0].kill()
        session = Session(coord, lease.id, lease.ttl_s, coord.now_ms(), None)
        lost = await asyncio.wait_for(session.wait_lost(), PATIENCE_S)
        assert "in time" in str(lost)
        await coord.close()


async def test_lease_keep_alive_ttl_timeout() -> None:
    """TestLeaseKeepAliveTTLTimeout: renewals that stop being answered end the session. (Before the TTL:
    `test_a_session_is_lost_before_its_lease_can_be`.)"""
    with EtcdCluster(1) as cluster:
        coord = await connect(cluster.url, timeout_s=1)
        session = await Session.open(coord, ttl_s=2)
        await until(lambda: session.certain_for_ms > 0)
        cluster.nodes[0].freeze()
        await asyncio.wait_for(session.wait_lost(), PATIENCE_S)
        with pytest.raises(SessionLost):
            session.check()
        cluster.nodes[0].thaw()
        await session.close(timeout_s=1)
        await coord.close()


async def test_lease_keep_alive_handle_failure() -> None:
    """TestLeaseKeepAliveHandleFailure, TestV3LeaseFailureOverlap, TestLeaseWithRequireLeader: the server is away for a
    while, shorter than the TTL; renewals go on by themselves afterwards."""
    with EtcdCluster(1) as cluster:
        coord = await connect(cluster.url, timeout_s=1)
        session = await Session.open(coord, ttl_s=6)
        cluster.nodes[0].freeze()
        await until(lambda: session.state is SessionState.SUSPENDED)
        cluster.nodes[0].thaw()
        await until(lambda: session.state is SessionState.HEALTHY)
        await session.close()
        await coord.close()


async def test_lease_renew_lost_quorum() -> None:
    """TestLeaseRenewLostQuorum: without a quorum the session is suspended, with it again healthy."""
    with EtcdCluster(3) as cluster:
        coord = await connect(cluster.url, timeout_s=1)
        session = await Session.open(coord, ttl_s=10)
        followers = cluster.followers()
        for node in followers:
            node.freeze()
        with pytest.raises(LeaseholdError):
            await coord.put(b"foo", b"bar", timeout_s=1)
        for node in followers:
            node.thaw()
        await until(lambda: session.certain_for_ms > 8_000)
        session.check()
        await session.close()
        await coord.close()


async def test_lease_revoke_during_renew(coord: Coord) -> None:
    """TestLeaseRevokeDuringRenew: revoked while it is being renewed; it is reported lost and stays so."""
    session = await Session.open(coord, ttl_s=2)
    await coord.lease_revoke(session.lease_id)
    renewals = await asyncio.gather(
        *(coord.lease_keep_alive_once(session.lease_id) for _ in range(5)), return_exceptions=True
    )
    assert all(isinstance(answer, LeaseNotFound) or getattr(answer, "ttl_s", 1) <= 0 for answer in renewals)
    await asyncio.wait_for(session.wait_lost(), PATIENCE_S)
    await session.close()


async def test_lease_revoke_ignore_old_leader() -> None:
    """TestLeaseRevoke_IgnoreOldLeader, TestLeaseRevoke_ClientSwitchToOtherMember: the raft leader freezes and comes
    back; the client has gone on to another member, and the lease that was renewed there is not revoked."""
    with EtcdCluster(3) as cluster:
        coord = await connect(cluster.url)
        session = await Session.open(coord, ttl_s=8)
        await coord.put(b"held", b"", lease=session.lease_id)
        old = cluster.leader()
        old.freeze()
        certain_until_ms = coord.now_ms() + session.certain_for_ms
        await until(lambda: coord.now_ms() + session.certain_for_ms > certain_until_ms + 500, "it is renewed elsewhere")
        old.thaw()
        await asyncio.sleep(2)  # the old leader has woken, with a lease that it takes for expired or nearly so
        assert await coord.get_one(b"held") is not None
        session.check()
        await session.close()
        await coord.close()
