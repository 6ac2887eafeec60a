"""History of the store that nobody needs any more. Only on request: etcd compacts for all of its users at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from leasehold.base.errors import LeaseholdError
from leasehold.coord.api import Coord
from leasehold.mvcc.errors import Compacted

log = structlog.get_logger("leasehold.node")

STEPS: Final = 10  # looks within one `keep_ms`: history is at most a tenth older than asked for


async def keep_compacting(coord: Coord, keep_ms: int, leads: Callable[[], bool]) -> None:
    """Until cancelled: while this node leads, compact to the revision that stood `keep_ms` ago.

    A reader that lags further behind is told so by its watch, and lists again; a standby loses nothing by it.
    """
    seen: list[int] = []
    while True:
        await asyncio.sleep(keep_ms / 1000 / STEPS)
        if not leads():
            seen.clear()  # the revisions of an earlier office say nothing about how old they are
            continue
        try:
            seen.append((await coord.get(b"\0", count_only=True)).header.revision)
            if len(seen) > STEPS:
                await _compact(coord, seen.pop(0))
        except LeaseholdError as error:
            log.info("the store's history could not be compacted: it will be later", error=str(error))


async def _compact(coord: Coord, revision: int) -> None:
    try:
        await coord.compact(revision)
    except Compacted:
        return  # somebody else has gone further
    log.debug("the store's history was compacted", revision=revision)
