"""Three candidates, one leader at a time; an observer watches.

python examples/concurrency/election.py [etcd://127.0.0.1:2379]
"""

from __future__ import annotations

import asyncio
import sys

import leasehold
from leasehold.concurrency import Election, Session
from leasehold.coord.api import Coord


async def candidate(coord: Coord, name: str) -> None:
    async with Session.open(coord, ttl_s=10) as session:
        election = Election(session, "example/leader")
        async with election.lead(name) as held:
            held.check()
            print(f"{name} leads", flush=True)
            await election.proclaim(f"{name}, at work")
        # Leaving the block resigns; losing the session would have cancelled the block with SessionLost.


async def observer(coord: Coord, until: int) -> None:
    async with Session.open(coord) as session:
        seen: set[bytes] = set()
        async for leader in Election(session, "example/leader").observe():
            if leader.kv is not None:
                seen.add(leader.kv.key)
            if len(seen) == until and leader.kv is None:
                print(f"{until} leaders seen, and now there is none", flush=True)
                return


async def main(url: str) -> None:
    async with await leasehold.connect(url) as coord:
        watching = asyncio.create_task(observer(coord, 3))
        await asyncio.sleep(0.1)
        await asyncio.gather(*(candidate(coord, name) for name in ("anna", "ben", "carl")))
        await watching


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
