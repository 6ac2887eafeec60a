"""Watches on keys, for recipes that wait for a change.

Watch first, *from now*, and read afterwards. etcd serves a watch from a past revision from its list of watchers that
have to catch up, which it processes every 100 ms. It serves a watch that starts now immediately.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from msgspec import Struct

from leasehold.base.errors import LeaseholdError, Unavailable
from leasehold.concurrency.session import Session
from leasehold.coord.api import WatchStream
from leasehold.coord.errors import SlowConsumer
from leasehold.mvcc.errors import Compacted
from leasehold.mvcc.model import EventType, WatchFilter

# After these errors the watch must be set up again and the state read again. Nothing else is wrong.
WATCH_BROKEN = (Compacted, SlowConsumer, Unavailable)
WATCH_RETRY_S = 0.1


class Watches(Struct, frozen=True):
    """Watches that the store has confirmed. False if they could not be set up.

    `fired` has one task per key, done when the key must be read again; its result is the value that was put last
    before that. The watches see every change from revision `since` on.
    """

    fired: tuple[asyncio.Task[bytes], ...]
    since: int

    def __bool__(self) -> bool:
        return bool(self.fired)


@asynccontextmanager
async def watching(
    session: Session, *keys: bytes, filters: Sequence[WatchFilter] = (), until_deleted: bool = False
) -> AsyncIterator[Watches]:
    """Watch `keys` for changes *from now on*. If that cannot be set up, yield a false `Watches` after a pause."""
    streams = [session.coord.watch(key, filters=filters) for key in keys]
    ready = [asyncio.get_running_loop().create_future() for _ in streams]
    following = [asyncio.create_task(_follow(stream, ready[n], until_deleted)) for n, stream in enumerate(streams)]
    try:
        since = await _all_ready(session, ready)
        yield Watches(tuple(following) if since else (), since)
    finally:
        for task in following:
            task.cancel()
        for stream in streams:
            await stream.close()


def watching_deletes(session: Session, *keys: bytes, puts_too: bool = False) -> AbstractAsyncContextManager[Watches]:
    """As `watching`, for deletions only. With `puts_too`, values put before the deletion are recorded."""
    return watching(session, *keys, filters=() if puts_too else [WatchFilter.NO_PUT], until_deleted=True)


async def set_up(session: Session, stream: WatchStream) -> bool:
    """Wait until the store has confirmed the watch; False, after a pause, if it cannot be set up."""
    confirmed = asyncio.ensure_future(stream.ready())
    confirmed.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, even if never awaited
    try:
        await session.or_lost(confirmed)
        return bool(confirmed.result())
    except WATCH_BROKEN:
        await asyncio.sleep(WATCH_RETRY_S)
        return False
    finally:
        confirmed.cancel()


async def _all_ready(session: Session, ready: list[asyncio.Future[int]]) -> int:
    """Wait until all watches are confirmed; returns the revision from which they are complete, or 0 after a pause."""
    while missing := [future for future in ready if not future.done()]:
        await session.or_lost(*missing)
    since = [future.result() for future in ready]
    if 0 in since:
        await asyncio.sleep(WATCH_RETRY_S)
        return 0
    return max(since)


async def _follow(stream: WatchStream, ready: asyncio.Future[int], until_deleted: bool) -> bytes:
    """Set `ready` to the revision from which the watch is complete (0: broken), then wait for a change."""
    value = b""
    try:
        ready.set_result(await stream.ready())
        async for batch in stream:
            for event in batch.events:
                if event.type is EventType.DELETE or not until_deleted:
                    return value
                value = event.kv.value
    except WATCH_BROKEN:
        if not ready.done():
            ready.set_result(0)
    except LeaseholdError as error:
        if ready.done():
            raise
        ready.set_exception(error)
        ready.exception()  # retrieved: the task that waits for it may have been cancelled
    return value
