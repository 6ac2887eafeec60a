"""Take the first item of a queue. Each item goes to one taker; waiting needs no polling."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from leasehold.base.errors import LeaseholdError, Unavailable, UnknownOutcome
from leasehold.concurrency.session import CLEANUP_S_MAX
from leasehold.concurrency.watches import WATCH_BROKEN, WATCH_RETRY_S
from leasehold.coord.api import Coord
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    KeyValue,
    Put,
    Range,
    RangeResult,
    WatchFilter,
)
from leasehold.runtime.log import get_logger

log = get_logger(__name__)
_unfinished: set[asyncio.Task[None]] = set()  # the loop alone would let them be collected


async def take_first(coord: Coord, first: Range) -> bytes:
    """Wait for a key that `first` finds, delete it and return its value."""
    while True:
        found = await _find(coord, first)
        if found.kvs:
            if await _claim(coord, found.kvs[0]):
                return found.kvs[0].value
        else:
            await _until_put(coord, first, found.header.revision + 1)


async def _find(coord: Coord, first: Range) -> RangeResult:
    return await coord.get(
        first.key, first.range_end, limit=first.limit, sort_order=first.sort_order, sort_target=first.sort_target
    )


async def _claim(coord: Coord, kv: KeyValue) -> bool:
    """Delete the item that was read; False if another taker was faster. A cancelled taker puts the item back."""
    claiming = asyncio.create_task(_delete(coord, kv))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        putting_back = asyncio.create_task(_put_back(coord, claiming, kv))
        _unfinished.add(putting_back)
        putting_back.add_done_callback(_unfinished.discard)
        await asyncio.wait({putting_back}, timeout=CLEANUP_S_MAX)
        raise


async def _put_back(coord: Coord, claiming: asyncio.Task[bool], kv: KeyValue) -> None:
    """Repeat until the store has answered: no other copy of the item exists."""
    absent = Compare(kv.key, CompareTarget.VERSION, CompareResult.EQUAL, 0)
    try:
        while await claiming:
            with suppress(Unavailable, UnknownOutcome):
                await coord.txn([absent], [Put(kv.key, kv.value, lease=kv.lease)])
                return
            await asyncio.sleep(WATCH_RETRY_S)
    except LeaseholdError as error:
        log.warning("An item may be lost: its taker was cancelled.", key=kv.key, error=str(error))


async def _delete(coord: Coord, kv: KeyValue) -> bool:
    unchanged = Compare(kv.key, CompareTarget.MOD, CompareResult.EQUAL, kv.mod_revision)
    try:
        return (await coord.txn([unchanged], [DeleteRange(kv.key)])).succeeded
    except UnknownOutcome:
        if await coord.get_one(kv.key) is not None:
            return False  # not deleted: read the queue again
        raise


async def _until_put(coord: Coord, first: Range, start_revision: int) -> None:
    stream = coord.watch(first.key, first.range_end, start_revision=start_revision, filters=[WatchFilter.NO_DELETE])
    try:
        async for batch in stream:
            if batch.events:
                return
    except WATCH_BROKEN:
        await asyncio.sleep(WATCH_RETRY_S)
    finally:
        await stream.close()
