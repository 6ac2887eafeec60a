"""Software transactional memory: read and write as if alone; a transaction that met a conflict runs again.

    async def transfer(tx: Stm) -> None:
        tx.put("a", str(int(await tx.get("a")) - 10))
        tx.put("b", str(int(await tx.get("b")) + 10))

    await stm(coord, transfer)

Isolation levels are Go's; range reads are ours.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct

from leasehold.base.errors import InvalidArgument
from leasehold.base.limits import store_txn_ops_max
from leasehold.concurrency.errors import TooMuchConflict
from leasehold.concurrency.keys import as_bytes
from leasehold.concurrency.readset import ReadSet
from leasehold.coord.api import Coord
from leasehold.mvcc.errors import Compacted, FutureRevision
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    Header,
    KeyValue,
    Op,
    Put,
    Range,
    RangeResult,
    TxnResult,
    prefix_end,
)

T = TypeVar("T")

ATTEMPTS_MAX = 100
BACKOFF_S_MIN = 0.001
BACKOFF_S_MAX = 0.25


class Isolation(Enum):
    """From strict to lax. The first two read everything at one revision."""

    SERIALIZABLE_SNAPSHOT = "serializable snapshot"  # writes to keys that were not read conflict, too
    SERIALIZABLE = "serializable"
    REPEATABLE_READS = "repeatable reads"  # reads may be stale, and of different revisions
    READ_COMMITTED = "read committed"  # nothing is compared: the last writer wins

    @property
    def one_revision(self) -> bool:
        """Whether all reads are at one revision."""
        return self in (Isolation.SERIALIZABLE_SNAPSHOT, Isolation.SERIALIZABLE)


class StmResult(Struct, Generic[T], frozen=True):
    """The return value of `apply` in the committed attempt, and the header of the commit."""

    value: T
    header: Header
    attempts: int


class Stm:
    """One attempt: reads are recorded, writes are buffered until the commit."""

    def __init__(self, coord: Coord, isolation: Isolation, timeout_s: float | None, known: ReadSet) -> None:
        self._coord = coord
        self._isolation = isolation
        self._timeout_s = timeout_s
        self._reads = known
        self._writes: dict[bytes, Op] = {}

    async def get(self, *keys: str | bytes) -> bytes:
        """The value of the first key, b"" if it is absent; several keys are fetched in one round trip.

        As in Go, a key that this transaction has written returns the written value.
        """
        wanted = [as_bytes(key) for key in keys]
        for key in wanted:
            if (written := self._writes.get(key)) is not None:
                return written.value if isinstance(written, Put) else b""
        if not wanted:
            return b""
        found = await self._look(wanted)
        return found[0].value if found[0] else b""

    async def rev(self, key: str | bytes) -> int:
        """The revision at which the key was last changed, 0 if it is absent; own writes do not count."""
        [kv] = await self._look([as_bytes(key)])
        return kv.mod_revision if kv else 0

    async def get_prefix(self, prefix: str | bytes) -> dict[bytes, bytes]:
        """All keys under `prefix` with their values, own writes included.

        The commit fails and is tried again if a key there was added, changed or deleted meanwhile.
        """
        start = as_bytes(prefix)
        found = await self._range(start, prefix_end(start))
        for key, write in self._writes.items():
            if key.startswith(start):
                found.pop(key, None)
                if isinstance(write, Put):
                    found[key] = write.value
        return dict(sorted(found.items()))

    def put(self, key: str | bytes, value: str | bytes, *, lease: int = 0) -> None:
        """Write `key` when the transaction commits; `get` in the same transaction sees it immediately."""
        self._write(Put(as_bytes(key), as_bytes(value), lease=lease))

    def delete(self, key: str | bytes) -> None:
        """Delete `key` when the transaction commits; `get` in the same transaction sees that immediately."""
        self._write(DeleteRange(as_bytes(key)))

    def _write(self, op: Put | DeleteRange) -> None:
        if op.key not in self._writes and len(self._writes) >= store_txn_ops_max:
            raise InvalidArgument(f"a transaction writes at most {store_txn_ops_max} keys: split it")
        self._writes[op.key] = op

    async def _look(self, keys: list[bytes]) -> list[KeyValue | None]:
        if missing := [key for key in keys if not self._reads.has(key)]:
            await self.load(missing)
        return [self._reads.look(key) for key in keys]

    async def load(self, keys: Iterable[bytes]) -> None:
        """Read `keys` in one round trip and record them."""
        ranges = [self._read(key) for key in dict.fromkeys(keys)]
        if len(ranges) > store_txn_ops_max:
            raise InvalidArgument(f"one read takes at most {store_txn_ops_max} keys: split it")
        result = await self._coord.txn(success=ranges, timeout_s=self._timeout_s)
        for request, answer in zip(ranges, result.results, strict=True):
            if isinstance(answer, RangeResult):
                self._reads.add(request.key, answer.kvs[0] if answer.kvs else None, result.header.revision)

    async def _range(self, start: bytes, end: bytes) -> dict[bytes, bytes]:
        if (known := self._reads.range(start, end)) is None:
            request = self._read(start, end)
            result = await self._coord.txn(success=[request], timeout_s=self._timeout_s)
            answer = result.results[0]
            known = answer.kvs if isinstance(answer, RangeResult) else ()
            self._reads.add_range(start, end, known, result.header.revision)
        return {kv.key: kv.value for kv in known}

    def _read(self, key: bytes, range_end: bytes = b"") -> Range:
        """Go's options: the first read fixes the revision; later reads use it, from any member."""
        if self._isolation.one_revision:
            pinned = self._reads.revision
            return Range(key, range_end, revision=pinned, serializable=pinned != 0)
        return Range(key, range_end, serializable=True)

    async def commit(self) -> TxnResult:
        """Write everything if no key that was read has changed; else read them again for the next attempt."""
        compares = self._compares()
        if len(compares) > store_txn_ops_max:
            raise InvalidArgument(
                f"a transaction compares at most {store_txn_ops_max} keys, this one {len(compares)}: read less"
            )
        again = [Range(key) for key in self._reads.seen()] if self._isolation.one_revision else []
        return await self._coord.txn(compares, tuple(self._writes.values()), again, timeout_s=self._timeout_s)

    def _compares(self) -> list[Compare]:
        if self._isolation is Isolation.READ_COMMITTED:
            return []
        compares = self._reads.compares()
        if self._isolation is Isolation.SERIALIZABLE_SNAPSHOT and self._reads.revision:
            below, seen = self._reads.revision + 1, set(self._reads.seen())
            compares += [
                Compare(key, CompareTarget.MOD, CompareResult.LESS, below) for key in self._writes if key not in seen
            ]
        return compares


async def stm(
    coord: Coord,
    apply: Callable[[Stm], Awaitable[T]],
    *,
    isolation: Isolation = Isolation.SERIALIZABLE_SNAPSHOT,
    prefetch: Iterable[str | bytes] = (),
    attempts_max: int = ATTEMPTS_MAX,
    timeout_s: float | None = None,
) -> StmResult[T]:
    """Run `apply` until its commit meets no conflict; an exception in it, or cancellation, writes nothing.

    `prefetch` is read in one round trip before the first attempt. After `attempts_max` conflicts
    `TooMuchConflict`. An `UnknownOutcome` of the commit is raised: it may have happened.
    """
    wanted = [as_bytes(key) for key in prefetch]
    known = ReadSet()
    for attempt in range(1, attempts_max + 1):
        tx = Stm(coord, isolation, timeout_s, known)
        try:
            if missing := [key for key in wanted if not known.has(key)]:
                await tx.load(missing)
            value = await apply(tx)
            result = await tx.commit()
        except (Compacted, FutureRevision):
            # The revision of the first read was compacted, or a lagging member does not have it yet.
            known = ReadSet()
            await _back_off(attempt)
            continue
        if result.succeeded:
            return StmResult(value, result.header, attempt)
        known = _known_after_conflict(known, result)
        await _back_off(attempt)
    raise TooMuchConflict(
        f"conflicts with other writers in {attempts_max} attempts; nothing was written: try again later"
    )


def _known_after_conflict(known: ReadSet, result: TxnResult) -> ReadSet:
    """The failed commit has read the read set again: that is the prefetch of the next attempt."""
    fresh = ReadSet()
    for key, answer in zip(known.seen(), result.results, strict=False):
        if isinstance(answer, RangeResult):
            kv: KeyValue | None = answer.kvs[0] if answer.kvs else None
            fresh.add(key, kv, result.header.revision)
    return fresh


async def _back_off(attempt: int) -> None:
    """Exponential backoff with jitter, from the second conflict on."""
    if attempt > 1:
        ceiling_s = min(BACKOFF_S_MIN * 2 ** min(attempt, 10), BACKOFF_S_MAX)
        await asyncio.sleep(random.uniform(0, ceiling_s))
