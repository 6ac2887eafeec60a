"""Move money between accounts, many at a time, without a lock.

python examples/concurrency/stm.py [etcd://127.0.0.1:2379]
"""

from __future__ import annotations

import asyncio
import sys

import leasehold
from leasehold.concurrency import Stm, stm
from leasehold.coord.api import Coord

ACCOUNTS = ("example/bank/a", "example/bank/b", "example/bank/c")


async def move(coord: Coord, source: str, target: str, amount: int) -> None:
    async def transfer(tx: Stm) -> None:
        """May run several times: it restarts if another transaction committed first."""
        balance = int(await tx.get(source))
        if balance < amount:
            raise ValueError(f"{source} has only {balance}")  # aborts: nothing is written
        tx.put(source, str(balance - amount))
        tx.put(target, str(int(await tx.get(target)) + amount))

    await stm(coord, transfer, prefetch=(source, target))


async def total(tx: Stm) -> int:
    """A range read: all accounts at one revision."""
    return sum(map(int, (await tx.get_prefix("example/bank/")).values()))


async def main(url: str) -> None:
    async with await leasehold.connect(url) as coord:
        for account in ACCOUNTS:
            await coord.put(account.encode(), b"100")
        a, b, c = ACCOUNTS
        await asyncio.gather(*(move(coord, *pair, 10) for pair in [(a, b), (b, c), (c, a), (a, c), (b, a)]))
        try:
            await move(coord, a, b, 1000)
        except ValueError as error:
            print(f"refused: {error.args[0].partition(' has')[0]} has not enough", flush=True)
        print(f"together: {(await stm(coord, total)).value}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
