"""A queue with priorities, with the keys of Go's recipe: `key/<priority, 5 digits>/<number, 16 digits>`.

Within a priority the lowest number goes first. Each priority has a bookkeeping key `__key/<priority>`, so that two
writers never use the same number.
"""

from __future__ import annotations

from leasehold.base.errors import InvalidArgument, UnknownOutcome
from leasehold.concurrency.keys import as_bytes
from leasehold.concurrency.take_first import take_first
from leasehold.concurrency.time_limit import time_limit
from leasehold.coord.api import Coord
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Put, Range, SortOrder, SortTarget, prefix_end

PRIORITY_MAX = 65_535


class PriorityQueue:
    """`enqueue(value, priority)`; `dequeue` takes the lowest priority number first, in order within it."""

    def __init__(self, coord: Coord, key: str | bytes) -> None:
        self._coord = coord
        self._prefix = as_bytes(key) + b"/"

    async def enqueue(self, value: str | bytes, priority: int) -> None:
        """Put an item. `UnknownOutcome` if the answer was lost and the item is not found in the queue."""
        if not 0 <= priority <= PRIORITY_MAX:
            raise InvalidArgument(f"a priority is 0 to {PRIORITY_MAX}, not {priority}")
        prefix = self._prefix + f"{priority:05d}".encode()
        while not await self._try_put(prefix, as_bytes(value)):
            pass  # another writer took the number; of colliding writers one always succeeds

    async def dequeue(self, *, timeout_s: float | None = None) -> bytes:
        """Take the first item; waits for one. See `Queue.dequeue` for lost answers."""
        async with time_limit(timeout_s, f"dequeue {self._prefix.decode(errors='replace')}"):
            first = Range(
                self._prefix,
                prefix_end(self._prefix),
                limit=1,
                sort_order=SortOrder.ASCEND,
                sort_target=SortTarget.KEY,
            )
            return await take_first(self._coord, first)

    async def _try_put(self, prefix: bytes, value: bytes) -> bool:
        last = await self._coord.get(
            prefix + b"/", prefix_end(prefix + b"/"), limit=1, sort_order=SortOrder.DESCEND, keys_only=True
        )
        number = int(last.kvs[0].key.rpartition(b"/")[2]) + 1 if last.kvs else 0
        key = prefix + f"/{number:016d}".encode()
        ledger = b"__" + prefix
        # No number was used since the listing. Without this, a number could be reused after its item was taken.
        unchanged = Compare(ledger, CompareTarget.MOD, CompareResult.LESS, last.header.revision + 1)
        try:
            return (await self._coord.txn([unchanged], [Put(ledger), Put(key, value)])).succeeded
        except UnknownOutcome:
            found = await self._coord.get_one(key)
            if found is not None and found.value == value:
                return True
            raise
