"""Compact old history of the store. Off by default, because compaction affects all users of an etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from leasehold.base.errors import LeaseholdError
from leasehold.coord.api import Coord
from leasehold.mvcc.errors import Compacted

log = structlog.get_logger("leasehold.node")

STEPS: Final = 10  # compactions per `keep_ms`, so history is at most a tenth older than requested


async def keep_compacting(coord: Coord, keep_ms: int, leads: Callable[[], bool]) -> None:
    """Run until cancelled: while this node leads, compact up to the revision of `keep_ms` ago.

    A watch that is further behind gets an error and its reader lists again; a standby loses nothing.
    """
    seen: list[int] = []
    while True:
        await asyncio.sleep(keep_ms / 1000 / STEPS)
        if not leads():
            seen.clear()  # revisions from an earlier term have an unknown age
            continue
        try:
            seen.append((await coord.get(b"\0", count_only=True)).header.revision)
            if len(seen) > STEPS:
                await _compact(coord, seen.pop(0))
        except LeaseholdError as error:
            log.info("could not compact the history of the store: retrying later", error=str(error))


async def _compact(coord: Coord, revision: int) -> None:
    try:
        await coord.compact(revision)
    except Compacted:
        return  # another client has compacted further
    log.debug("compacted the history of the store", revision=revision)
