"""A queue over the store, with the keys of Go's recipe: `prefix/<ns>`; first in, first out.

Items belong to no session: they stay until a client takes them.
"""

from __future__ import annotations

from leasehold.base.errors import UnknownOutcome
from leasehold.concurrency.keys import as_bytes, unique_key
from leasehold.concurrency.take_first import take_first
from leasehold.concurrency.time_limit import time_limit
from leasehold.coord.api import Coord
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Put, Range, SortOrder, SortTarget, prefix_end


class Queue:
    """`enqueue` and `dequeue`, from any number of processes."""

    def __init__(self, coord: Coord, prefix: str | bytes) -> None:
        self._coord = coord
        self._prefix = as_bytes(prefix)

    async def enqueue(self, value: str | bytes) -> None:
        """Put an item at the end. `UnknownOutcome` if the answer was lost and the item is not in the queue."""
        while True:
            key = unique_key(self._prefix)
            absent = Compare(key, CompareTarget.VERSION, CompareResult.EQUAL, 0)
            try:
                if (await self._coord.txn([absent], [Put(key, as_bytes(value))])).succeeded:
                    return
            except UnknownOutcome:
                if await self._coord.get_one(key) is not None:
                    return
                raise

    async def dequeue(self, *, timeout_s: float | None = None) -> bytes:
        """Take the oldest item; waits for one. Each item goes to one taker.

        `UnknownOutcome` if the answer was lost and the item was deleted, by this or another taker.
        """
        async with time_limit(timeout_s, f"dequeue {self._prefix.decode(errors='replace')}"):
            prefix = self._prefix + b"/"
            first = Range(prefix, prefix_end(prefix), limit=1, sort_order=SortOrder.ASCEND, sort_target=SortTarget.MOD)
            return await take_first(self._coord, first)
