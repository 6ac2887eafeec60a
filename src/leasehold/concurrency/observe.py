"""Follow the first key of a queue, the leader's, over compactions and broken connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from leasehold.base.errors import Unavailable
from leasehold.concurrency.watches import WATCH_BROKEN, WATCH_RETRY_S
from leasehold.coord.api import Coord
from leasehold.mvcc.model import Event, EventType, Header, KeyValue, prefix_end


class Candidates:
    """All keys of an election, and which of them leads. Pure: feed it a listing, then events."""

    __slots__ = ("_kvs",)

    def __init__(self, kvs: tuple[KeyValue, ...]) -> None:
        self._kvs = {kv.key: kv for kv in kvs}

    def head(self) -> KeyValue | None:
        """The oldest key: the leader's."""
        return min(self._kvs.values(), key=lambda kv: kv.create_revision, default=None)

    def apply(self, event: Event) -> None:
        if event.type is EventType.DELETE:
            self._kvs.pop(event.kv.key, None)
        else:
            self._kvs[event.kv.key] = event.kv


async def observe_leader(coord: Coord, prefix: bytes) -> AsyncIterator[tuple[Header, KeyValue | None]]:
    """The leader's key whenever it changes, None when there is none.

    The whole prefix is watched, not only the leader's key as in Go: the next leader is then known from the same
    stream, in order, and no change between two watches can be missed or reordered.
    """
    reported: KeyValue | None = None
    first = True
    while True:
        try:
            listing = await coord.get(prefix, prefix_end(prefix))
        except Unavailable:
            if first:
                raise  # nothing was reported yet: the address may be wrong
            await asyncio.sleep(WATCH_RETRY_S)
            continue
        candidates = Candidates(listing.kvs)
        head = candidates.head()
        if first or head != reported:
            first, reported = False, head
            yield listing.header, head
        watch = coord.watch(prefix, prefix_end(prefix), start_revision=listing.header.revision + 1)
        try:
            async for batch in watch:
                for event in batch.events:
                    candidates.apply(event)
                    head = candidates.head()
                    if head != reported:
                        reported = head
                        yield batch.header, head
        except WATCH_BROKEN:
            await asyncio.sleep(WATCH_RETRY_S)
        finally:
            await watch.close()
