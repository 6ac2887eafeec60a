"""Know the leader without a request: a local copy that follows the election.

python examples/concurrency/leader_cache.py [etcd://127.0.0.1:2379]
"""

from __future__ import annotations

import asyncio
import sys

import leasehold
from leasehold.concurrency import Election, Leader, Session


class LeaderCache:
    """`current` is the newest leader that the store has reported; None while there is none."""

    def __init__(self, election: Election) -> None:
        self._election = election
        self._changed = asyncio.Condition()
        self.current: Leader | None = None

    async def follow(self) -> None:
        """Run this as a task. It survives compactions and broken connections, and never misses the newest state."""
        async for leader in self._election.observe():
            async with self._changed:
                self.current = leader if leader.kv is not None else None
                self._changed.notify_all()

    async def wait_for(self, value: bytes | None) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: (self.current.value if self.current else None) == value)


async def main(url: str) -> None:
    async with await leasehold.connect(url) as coord, Session.open(coord) as session, Session.open(coord) as mine:
        cache = LeaderCache(Election(mine, "example/cached"))
        following = asyncio.create_task(cache.follow())
        election = Election(session, "example/cached")
        async with election.lead("http://10.0.0.1"):
            await cache.wait_for(b"http://10.0.0.1")
            print("the cache knows the leader", flush=True)
            await election.proclaim("http://10.0.0.2")
            await cache.wait_for(b"http://10.0.0.2")
            print("the cache knows its new address", flush=True)
        await cache.wait_for(None)
        print("the cache knows that there is no leader", flush=True)
        following.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
