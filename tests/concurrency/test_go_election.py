"""The original's tests of elections, under their own names."""

from __future__ import annotations

import asyncio

import pytest
from tests.concurrency.helpers import PATIENCE_S, keys_under, still_waiting, waiters

from leasehold.concurrency import Election, Leader, NoLeader, NotLeader, Session
from leasehold.coord.api import Coord
from leasehold.testing.waiting import until


async def next_leader(observed: list[Leader], known: int) -> Leader:
    """The first observation after the `known` first ones that names a leader."""

    def named() -> list[Leader]:
        return [leader for leader in observed[known:] if leader.kv is not None]

    await until(lambda: bool(named()))
    return named()[0]


async def collect(election: Election, into: list[Leader]) -> None:
    async for leader in election.observe():
        into += [leader]


async def test_resume_election(coord: Coord, name: str) -> None:
    """TestResumeElection: a leadership is resumed with key and revision, and observers see it."""
    async with Session.open(coord) as session:
        first = Election(session, name)
        await first.campaign("candidate1")
        resumed = Election.resume(session, name, first.key, first.rev)
        observed: list[Leader] = []
        observer = asyncio.create_task(collect(resumed, observed))
        assert (await next_leader(observed, 0)).value == b"candidate1"
        await resumed.proclaim("candidate2")
        assert (await next_leader(observed, 1)).value == b"candidate2"
        leader = await resumed.leader()
        assert leader.kv is not None
        assert (leader.kv.key, leader.kv.create_revision) == (first.key, first.rev)
        await resumed.resign()
        with pytest.raises(NoLeader):
            await first.leader()
        observer.cancel()


async def test_example_election_campaign(coord: Coord, name: str) -> None:
    """ExampleElection_Campaign: the second candidate is elected when the first resigns."""
    async with Session.open(coord) as s1, Session.open(coord) as s2:
        e1, e2 = Election(s1, name), Election(s2, name)
        await e1.campaign("e1")
        second = asyncio.create_task(e2.campaign("e2"))
        await waiters(coord, name, 2)
        assert (await e2.leader()).value == b"e1"
        await e1.resign()
        await second
        assert (await e1.leader()).value == b"e2"


async def test_election_wait(coord: Coord, name: str) -> None:
    """TestElectionWait: three leaders after each other; followers see them in order."""
    leaders, followers = 3, 3
    seen: list[list[bytes]] = []

    async def follow() -> None:
        mine: list[bytes] = []
        seen.append(mine)
        async with Session.open(coord) as session:
            async for leader in Election(session, name).observe():
                if leader.kv is not None:
                    mine.append(leader.value)
                if len(mine) == leaders:
                    return

    async def lead(number: int) -> None:
        async with Session.open(coord) as session:
            election = Election(session, name)
            await election.campaign(str(number))
            await until(lambda: all(str(number).encode() in mine for mine in seen))
            await election.resign()

    following = [asyncio.create_task(follow()) for _ in range(followers)]
    await until(lambda: len(seen) == followers)
    await asyncio.gather(*(lead(number) for number in range(leaders)))
    await asyncio.wait_for(asyncio.gather(*following), PATIENCE_S)
    assert all(mine == seen[0] for mine in seen)
    assert sorted(seen[0]) == [b"0", b"1", b"2"]


async def test_election_failover(coord: Coord, name: str) -> None:
    """TestElectionFailover: the leader's session ends, the next one leads, an observer sees both."""
    s1 = await Session.open(coord)
    async with Session.open(coord) as s2, Session.open(coord) as watcher:
        observed: list[Leader] = []
        observer = asyncio.create_task(collect(Election(watcher, name), observed))
        await Election(s1, name).campaign("foo")
        assert (await next_leader(observed, 0)).value == b"foo"
        known = len(observed)
        second = asyncio.create_task(Election(s2, name).campaign("bar"))
        await waiters(coord, name, 2)
        await s1.close()
        await asyncio.wait_for(second, PATIENCE_S)
        assert (await next_leader(observed, known)).value == b"bar"
        observer.cancel()


async def test_election_session_recampaign(coord: Coord, name: str) -> None:
    """TestElectionSessionRecampaign: a campaign of the session that leads already only changes the value."""
    async with Session.open(coord) as session:
        first, second = Election(session, name), Election(session, name)
        await first.campaign("abc")
        await second.campaign("def")
        leader = await first.leader()
        assert leader.value == b"def"
        assert leader.kv is not None
        assert first.rev == second.rev == leader.kv.create_revision


async def test_election_on_prefix_of_existing_key(coord: Coord, name: str) -> None:
    """TestElectionOnPrefixOfExistingKey: a key that only starts with the same name is not a candidate."""
    await coord.put(f"{name}a".encode(), b"foo")
    async with Session.open(coord) as session:
        await asyncio.wait_for(Election(session, name).campaign("bar"), PATIENCE_S)


async def test_election_on_session_restart(coord: Coord, name: str) -> None:
    """TestElectionOnSessionRestart: a leader that comes back with a new session while its old key still stands
    waits for that, and leads with its new value afterwards."""
    old = await Session.open(coord)
    await Election(old, name).campaign("last")
    await old.orphan()
    async with Session.open(coord) as session:
        again = asyncio.create_task(Election(session, name).campaign("new"))
        await waiters(coord, name, 2)
        assert await still_waiting(again, for_s=0.05)
        await coord.lease_revoke(old.lease_id)
        await asyncio.wait_for(again, PATIENCE_S)
        assert (await Election(session, name).leader()).value == b"new"


async def test_election_observe_compacted(coord: Coord, name: str) -> None:
    """TestElectionObserveCompacted: an observer that starts after a compaction gets the leader."""
    async with Session.open(coord) as session:
        election = Election(session, name)
        await election.campaign("abc")
        revision = (await coord.put(b"foo", b"bar")).header.revision
        await coord.compact(revision)
        async with asyncio.timeout(PATIENCE_S):
            async for leader in election.observe():
                assert leader.value == b"abc"
                break


async def test_election_observe_fresh_responses_on_proclaim(coord: Coord, name: str) -> None:
    """TestElectionObserveFreshResponsesOnProclaim: an earlier response does not change with the next proclamation."""
    async with Session.open(coord) as session:
        election = Election(session, name)
        await election.campaign("v0")
        observed: list[Leader] = []
        observer = asyncio.create_task(collect(election, observed))
        await next_leader(observed, 0)
        for number in range(1, 4):
            await election.proclaim(f"v{number}")
            await next_leader(observed, number)
        assert [leader.value for leader in observed] == [b"v0", b"v1", b"v2", b"v3"]
        assert len({leader.header.revision for leader in observed}) == 4
        observer.cancel()


async def test_observe_reports_that_there_is_no_leader(coord: Coord, name: str) -> None:
    async with Session.open(coord) as session:
        election = Election(session, name)
        observed: list[Leader] = []
        observer = asyncio.create_task(collect(election, observed))
        await until(lambda: len(observed) == 1)
        async with election.lead("me") as held:
            held.check()
            await next_leader(observed, 1)
        await until(lambda: len(observed) == 3)
        assert [leader.value for leader in observed] == [b"", b"me", b""]
        assert [leader.kv is None for leader in observed] == [True, False, True]
        observer.cancel()


async def test_proclaim_and_resign_without_leadership(coord: Coord, name: str) -> None:
    async with Session.open(coord) as session:
        election = Election(session, name)
        with pytest.raises(NotLeader):
            await election.proclaim("x")
        await election.resign()  # nothing to resign from: as in Go, no error
        await election.campaign("x")
        await coord.delete(election.key)
        with pytest.raises(NotLeader):
            await election.proclaim("y")
        assert (election.key, election.rev) == (b"", 0)
        assert await keys_under(coord, name) == []
