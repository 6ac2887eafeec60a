"""The demo's clients: they fill the pool, read and write without pause, hold leases, and compare every byte."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from leasehold.base.codes import Code
from leasehold.base.errors import LeaseholdError
from leasehold.pool import Pool
from leasehold.pool.transfer import Transfer
from leasehold.runtime.clock import BootClock, wall_us
from leasehold.wire.messages import BufferDescriptor, MemoryReplica
from leasehold.wire.schema import Failed

OBJECT_BYTES: Final = 64 << 10
PROBE_BYTES: Final = 1 << 10
BATCH: Final = 16
PAUSE_S: Final = 0.01  # between two rounds of the prober: bounded load
TIMEOUT_MS: Final = 30_000
TALLY: Final = "tally"


def content(key: str) -> bytes:
    """The bytes of an object: random, but the same at every call, so that nothing has to be remembered."""
    return random.Random(key).randbytes(OBJECT_BYTES if key.startswith("object/") else PROBE_BYTES)


class Compared(Struct):
    """One comparison of every acknowledged key with its bytes."""

    keys: int = 0
    bytes: int = 0
    lost: int = 0  # acknowledged, but absent or with other bytes


class Ledger:
    """The keys whose puts were acknowledged, and those whose outcome is unknown."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, None] = {}  # in the order of their puts
        self.unknown: set[str] = set()

    async def fill(self, pool: Pool, count: int, advance: Callable[[int], None]) -> None:
        """Put `count` objects of real bytes."""
        for at in range(0, count, BATCH):
            keys = [f"object/{number}" for number in range(at, min(at + BATCH, count))]
            failures = await pool.put_many({key: content(key) for key in keys})
            for failed in failures.values():
                raise failed
            self.acknowledged.update(dict.fromkeys(keys))
            advance(len(keys))

    async def settle_unknown(self, pool: Pool) -> None:
        """Find out about puts that failed: they happened completely, or they are cancelled here, by the same client."""
        for key in list(self.unknown):
            if await pool.get(key) is None:
                with contextlib.suppress(LeaseholdError):
                    await pool.client.put_revoke(key)
            else:
                self.acknowledged[key] = None
            self.unknown.discard(key)

    async def compare(self, pool: Pool, advance: Callable[[int], None]) -> Compared:
        """Read every acknowledged key, and compare all of its bytes."""
        result = Compared()
        keys = list(self.acknowledged)
        for at in range(0, len(keys), BATCH):
            batch = keys[at : at + BATCH]
            for key, found in (await pool.get_many(batch)).items():
                if isinstance(found, LeaseholdError):
                    found = await pool.get(key)
                result.keys += 1
                result.bytes += len(found or b"")
                result.lost += found != content(str(key))
            advance(len(batch))
        return result


class Answer(Struct, frozen=True):
    """A moment at which everything that a round of the prober checks was right."""

    at_ms: int
    wall_us: int


class Prober:
    """One client that puts, replaces and reads without pause: its good answers show how long a fault lasts."""

    def __init__(self, masters: str, ledger: Ledger) -> None:
        self.pool = Pool(masters, timeout_ms=TIMEOUT_MS)
        self.answers: list[Answer] = []
        self.lost = 0  # it read that an acknowledged put of its own did not happen
        self.stale = 0  # it read an older value than one that was acknowledged before the read
        self.version = 0  # of the tally: acknowledged
        self._ledger = ledger
        self._clock = BootClock()
        self._rounds = 0
        self._stopped = False

    def stop(self) -> None:
        """Let `run` return after the present round: a put that is cancelled may or may not have happened."""
        self._stopped = True

    async def settle(self) -> None:
        """After `run`: leave no unfinished put or replacement of its own behind."""
        await self._ledger.settle_unknown(self.pool)
        with contextlib.suppress(LeaseholdError):  # usually there is no unfinished replacement
            await self.pool.client.upsert_revoke(TALLY)

    async def run(self) -> None:
        """Until `stop`."""
        while not self._stopped:
            self._rounds += 1
            with contextlib.suppress(LeaseholdError):  # a call that failed is no good answer: the next round is
                if await self._round(f"probe/{self._rounds}"):
                    self.answers.append(Answer(self._clock.now_ms(), wall_us()))
            await asyncio.sleep(PAUSE_S)

    async def _round(self, key: str) -> bool:
        """A put, a replacement, and reads of both. True if all of it is right."""
        try:
            await self.pool.put(key, content(key))
        except LeaseholdError:  # perhaps started, or even finished
            self._ledger.unknown.add(key)
            raise
        self._ledger.acknowledged[key] = None
        await self.pool.put(TALLY, b"%d" % self._rounds, replace=True)
        self.version = self._rounds
        found = await self.pool.get(key)
        if found != content(key):
            self.lost += 1
            return False
        return await self.is_fresh(self.pool)

    async def is_fresh(self, pool: Pool) -> bool:
        """Read the tally through any client. An older version than the acknowledged one is counted as stale."""
        least = self.version
        found = await pool.get(TALLY)
        stale = found is None or int(found) < least
        self.stale += stale
        return not stale

    def next_answer(self, since_ms: int, first: int) -> tuple[int, Answer]:
        """The longest time without a good answer since `since_ms`, and the answer that ended it.

        Answers before number `first` are not considered, except for the last one of them.
        """
        longest, at = -1, self.answers[-1]
        for before, after in zip(self.answers[first - 1 :], self.answers[first:], strict=False):
            waited_ms = after.at_ms - max(before.at_ms, since_ms)
            if after.at_ms > since_ms and waited_ms > longest:
                longest, at = waited_ms, after
        return longest, at


class HeldLeases:
    """Leases that a reader holds through a fault. Its own clock, counted from the request, decides when they expire."""

    def __init__(self, pool: Pool, keys: Sequence[str]) -> None:
        self._pool = pool
        self._keys = list(keys)
        self._clock = BootClock()
        self._places: dict[str, BufferDescriptor] = {}
        self._until_ms = 0

    async def take(self) -> None:
        sent_ms = self._clock.now_ms()
        terms_ms = []
        for key, found in zip(self._keys, await self._pool.client.batch_get_replica_list(self._keys), strict=True):
            if isinstance(found, Failed):
                continue
            for replica in found.replicas:
                if isinstance(replica.place, MemoryReplica):
                    self._places[key] = replica.place.buffer
                    terms_ms.append(found.lease_ttl_ms)
        self._until_ms = sent_ms + min(terms_ms, default=0)

    async def check(self) -> tuple[int, int]:
        """How many leases were checked, and how many were broken.

        A removal must be refused because of the lease, and the leased place must still have the object's bytes.
        """
        keys = list(self._places)
        removed = await self._pool.client.batch_remove(keys)
        checked = broken = 0
        transfer = Transfer(timeout_ms=TIMEOUT_MS)
        try:
            for key, outcome in zip(keys, removed, strict=True):
                data = await transfer.read(self._places[key])
                if self._clock.now_ms() >= self._until_ms:
                    break  # expired by the holder's own clock: it may not rely on it any more
                checked += 1
                refused = isinstance(outcome, Failed) and outcome.code == Code.HAS_LEASE
                broken += not refused or data != content(key)
        finally:
            transfer.close()
        return checked, broken
