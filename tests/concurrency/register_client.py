"""One client of the history test: takes the lock, and while it has it adds one to two registers.

Both are read, then the process does nothing for a while (blocking: a frozen process wakes up right there), then both
are written. One register is fenced: it takes a write only from the newest token it has seen. The other takes anything.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import TextIO

from leasehold.base.errors import LeaseholdError, UnknownOutcome
from leasehold.concurrency import Mutex, Session
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Op, Put

LEASE_TTL_S = 2


def now_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Client:
    def __init__(self, coord: Coord, name: str, log: TextIO) -> None:
        self.coord = coord
        self.name = name
        self.log = log
        self.number = 0
        self.writing: set[asyncio.Task[None]] = set()

    def note(self, **facts: object) -> None:
        self.log.write(json.dumps({"at": now_us(), **facts}) + "\n")
        self.log.flush()

    async def read(self, register: str) -> int:
        kv = await self.coord.get_one(f"{self.name}.{register}".encode())
        return int(kv.value) if kv else 0

    async def write(self, register: str, old: int, token: int) -> bool:
        put: list[Op] = [Put(f"{self.name}.{register}".encode(), str(old + 1).encode())]
        if register == "open":
            return (await self.coord.txn([], put)).succeeded
        highest = f"{self.name}.token".encode()
        mine = f"{token:016x}".encode()
        fence = Compare(highest, CompareTarget.VALUE, CompareResult.LESS, f"{token + 1:016x}".encode())
        return (await self.coord.txn([fence], [*put, Put(highest, mine)])).succeeded

    async def add_one(self, token: int) -> None:
        called = now_us()
        values = {register: await self.read(register) for register in ("open", "fenced")}
        self.number += 1
        for register, old in values.items():
            self.note(id=self.number, register=register, called=called, old=old)
        time.sleep(random.uniform(0.01, 0.05))  # blocking on purpose: see above
        # Not interrupted by the loss of the session: the worst writer there can be, its request is on its way.
        writing = asyncio.create_task(self.write_both(self.number, values, token))
        self.writing.add(writing)
        await asyncio.shield(writing)

    async def write_both(self, number: int, values: dict[str, int], token: int) -> None:
        for register, old in values.items():
            try:
                done = await self.write(register, old, token)
            except UnknownOutcome:
                continue  # it may have happened: stays without an end in the log
            except LeaseholdError:
                done = False
            self.note(id=number, register=register, done=done)


async def main(url: str, name: str, log: str, stop: Path) -> None:
    """Until there is a file at `stop`."""
    with open(log, "a") as file:
        async with await connect(url, timeout_s=2) as coord:
            client = Client(coord, name, file)
            while not stop.exists():
                try:
                    async with Session.open(coord, ttl_s=LEASE_TTL_S) as session:
                        while not stop.exists():
                            async with Mutex(session, name).hold(timeout_s=10) as held:
                                await client.add_one(held.token)
                except LeaseholdError as error:
                    client.note(trouble=repr(error))
                    await asyncio.sleep(0.1)
            await asyncio.gather(*client.writing)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
