"""Queueing up in the store and waiting for one's turn: what every lock, election and semaphore is made of.

A place in a queue is a key under the session's lease; the order is that of the create revisions. Three laws:

- watch first, *from now*, and read afterwards. A watch from a past revision is served by etcd from its list of
  watchers that have to catch up, which is looked at every 100 ms; one that starts now is served at once.
- a turn has come only if one read shows both that nobody is ahead and that the own key still stands. Without the
  second half a waiter whose lease has ended "wins" when its predecessor leaves: a phantom.
- a wait ends at once when the session ends or the own key is deleted by anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from msgspec import Struct

from leasehold.base.errors import Unavailable
from leasehold.concurrency.errors import PlaceLost, WaitTimeout
from leasehold.concurrency.keys import unique_key
from leasehold.concurrency.session import Session
from leasehold.coord.api import WatchStream
from leasehold.coord.errors import SlowConsumer
from leasehold.mvcc.errors import Compacted
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
    SortOrder,
    SortTarget,
    TxnResult,
    WatchFilter,
    prefix_end,
)

# The watch has to be set up again and the state read again; nothing else is wrong.
WATCH_BROKEN = (Compacted, SlowConsumer, Unavailable)
WATCH_RETRY_S = 0.1


class Place(Struct, frozen=True):
    """An own key in a queue. `revision` is its create revision: the order of the queue, and the fencing token."""

    key: bytes
    revision: int

    def stands(self) -> Compare:
        """Holds as long as this very key stands; a later one of the same name does not count."""
        return Compare(self.key, CompareTarget.CREATE, CompareResult.EQUAL, self.revision)


def create_compare(key: bytes, revision: int) -> Compare:
    return Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, revision)


def first_created(prefix: bytes) -> Range:
    """The head of a queue."""
    return Range(prefix, prefix_end(prefix), limit=1, sort_order=SortOrder.ASCEND, sort_target=SortTarget.CREATE)


def last_two(prefix: bytes) -> Range:
    """The end of a queue: a key that was created just now, and its immediate predecessor."""
    return Range(prefix, prefix_end(prefix), limit=2, sort_order=SortOrder.DESCEND, sort_target=SortTarget.CREATE)


def last_before(prefix: bytes, revision: int) -> Range:
    """The immediate predecessor of the place created at `revision`."""
    return Range(
        prefix,
        prefix_end(prefix),
        limit=1,
        sort_order=SortOrder.DESCEND,
        sort_target=SortTarget.CREATE,
        max_create_revision=revision - 1,
    )


def kvs_of(result: TxnResult, index: int) -> tuple[KeyValue, ...]:
    """The keys that operation `index` of a transaction read."""
    answer = result.results[index]
    return answer.kvs if isinstance(answer, RangeResult) else ()


class Entered(Struct, frozen=True):
    """The answer to `enter`: the place, the key if it stood there before, and what was read beside it."""

    place: Place
    header: Header
    existing: KeyValue | None
    found: tuple[KeyValue, ...]

    def is_mine(self, session: Session) -> bool:
        """Whether the key is this session's: created just now, or by a request whose answer was lost."""
        return self.existing is None or self.existing.lease == session.lease_id


async def enter(
    session: Session, key: bytes, value: bytes = b"", *, new: Range | None = None, there: Range | None = None
) -> Entered:
    """Queue up: create `key` under the session's lease unless it stands already. Leaves nothing behind if it fails.

    In the same transaction `new` is read if it was created, `there` if it was there.

    The request is never interrupted: a caller that is cancelled waits (not for ever) until its outcome is known and
    the key is gone again. Interrupting it would leave the question whether the key comes into being later.
    """
    entering = session.spawn(_enter(session, key, value, new, there))
    try:
        return await asyncio.shield(entering)
    except asyncio.CancelledError:
        await session.finish(_withdraw(session, entering))
        raise


async def _enter(session: Session, key: bytes, value: bytes, new: Range | None, there: Range | None) -> Entered:
    absent = create_compare(key, 0)
    then: list[Op] = [Put(key, value, lease=session.lease_id)]
    otherwise: list[Op] = [Range(key)]
    if new is not None and there is not None:
        then.append(new)
        otherwise.append(there)
    result = await session.settle(lambda: session.coord.txn([absent], then, otherwise))
    existing = None if result.succeeded else kvs_of(result, 0)[0]
    revision = result.header.revision if existing is None else existing.create_revision
    found = kvs_of(result, 1) if len(result.results) > 1 else ()
    return Entered(Place(key, revision), result.header, existing, found)


async def _withdraw(session: Session, entering: asyncio.Task[Entered]) -> None:
    entered = await entering
    if entered.is_mine(session):
        await leave(session, entered.place)


async def enter_unique(session: Session, prefix: bytes) -> Entered:
    """Queue up with a key that nobody else has: `prefix/<ns>`."""
    while True:
        entered = await enter(session, unique_key(prefix))
        if entered.is_mine(session):
            return entered


async def leave(session: Session, place: Place) -> Header:
    """Delete the own key, and only that very one; repeated until answered, or until the lease must have ended."""
    result = await session.settle(lambda: session.coord.txn([place.stands()], [DeleteRange(place.key)]))
    return result.header


async def leave_shielded(session: Session, place: Place) -> Header:
    """`leave`, to its end even if the caller is cancelled."""
    return await asyncio.shield(session.spawn(leave(session, place)))


@asynccontextmanager
async def leaving_on_failure(session: Session, place: Place) -> AsyncIterator[None]:
    """Whatever goes wrong inside, also cancellation: the place is given up."""
    try:
        yield
    except BaseException:
        await session.finish(leave(session, place))
        raise


@asynccontextmanager
async def time_limit(timeout_s: float | None, what: str) -> AsyncIterator[None]:
    """`asyncio.timeout` with an error that says what was waited for."""
    if timeout_s is None:
        yield
        return
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except WaitTimeout:
        raise
    except TimeoutError:
        raise WaitTimeout(f"{what}: not within {timeout_s} s; nothing was left behind") from None


class _Look(Struct, frozen=True):
    header: Header
    blocker: KeyValue | None


async def turn(session: Session, place: Place, ahead: Range, blocker: KeyValue | None = None) -> Header:
    """Wait until `ahead` finds nobody while the own key stands; the header of the read that showed it.

    `blocker` is who is ahead, if that is known already. Only one key ahead is watched at a time (no herd).
    """
    if blocker is None:
        look = await _look(session, place, ahead)
    else:
        look = _Look(Header(0), blocker)
    while (blocker := look.blocker) is not None:
        async with watching_deletes(session, blocker.key, place.key) as gone:
            look = await _look(session, place, ahead)
            if gone and look.blocker is not None and _same(look.blocker, blocker):
                await session.or_lost(*gone)
                look = await _look(session, place, ahead)
    return look.header


def _same(one: KeyValue, other: KeyValue) -> bool:
    return one.key == other.key and one.create_revision == other.create_revision


async def _look(session: Session, place: Place, ahead: Range) -> _Look:
    """Who is ahead, if the own key still stands: both at one revision."""
    result = await session.settle(lambda: session.coord.txn([place.stands()], [ahead]))
    if not result.succeeded:
        raise own_key_gone(session, place)
    blockers = kvs_of(result, 0)
    return _Look(result.header, blockers[0] if blockers else None)


def own_key_gone(session: Session, place: Place) -> PlaceLost:
    return PlaceLost(
        f"the own key {place.key.decode(errors='replace')} (revision {place.revision}) of session "
        f"{session.lease_id:x} is gone: its lease ended, or somebody deleted it; start again"
    )


@asynccontextmanager
async def watching(
    session: Session, *keys: bytes, filters: Sequence[WatchFilter] = ()
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """A task for each of `keys` that is done when it has changed *from now on*, or when one has to look again.

    Gives an empty list, after a pause, when the watches could not be set up.
    """
    streams = [session.coord.watch(key, filters=filters) for key in keys]
    tasks: list[asyncio.Task[None]] = []
    try:
        if await set_up(session, *streams):
            tasks = [asyncio.create_task(_changed(stream)) for stream in streams]
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        for stream in streams:
            await stream.close()


async def set_up(session: Session, *streams: WatchStream) -> bool:
    """Wait until the store has taken the watches, or until the session is lost; False, after a pause, if it cannot."""
    all_ready = asyncio.gather(*(stream.ready() for stream in streams))
    try:
        await session.or_lost(all_ready)
        all_ready.result()
    except WATCH_BROKEN:
        await asyncio.sleep(WATCH_RETRY_S)
        return False
    finally:
        all_ready.cancel()
    return True


def watching_deletes(session: Session, *keys: bytes) -> AbstractAsyncContextManager[list[asyncio.Task[None]]]:
    """As `watching`, for deletions only."""
    return watching(session, *keys, filters=[WatchFilter.NO_PUT])


async def _changed(stream: WatchStream) -> None:
    with suppress(*WATCH_BROKEN):
        async for batch in stream:
            if batch.events:
                return
