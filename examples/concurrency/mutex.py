"""Two workers share one lock; their writes carry a fencing token.

python examples/concurrency/mutex.py [etcd://127.0.0.1:2379]
"""

from __future__ import annotations

import asyncio
import sys

import leasehold
from leasehold.concurrency import Mutex, Session
from leasehold.coord.api import Coord
from leasehold.mvcc.model import Put


async def worker(coord: Coord, name: str) -> None:
    async with Session.open(coord, ttl_s=10) as session:
        for _ in range(3):
            async with Mutex(session, "example/jobs") as held:
                # The write happens only if this very hold still stands in the store, whatever happened in between.
                done = await coord.txn([held.is_owner()], [Put(b"example/last-worker", name.encode())])
                held.check()  # local and free: raises once holding is no longer certain
                print(f"{name} worked, written: {done.succeeded}", flush=True)


async def main(url: str) -> None:
    async with await leasehold.connect(url) as coord:
        await asyncio.gather(worker(coord, "anna"), worker(coord, "ben"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
