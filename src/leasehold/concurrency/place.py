"""Places in a queue: what locks, elections and semaphores are made of.

A place is a key under the session's lease. The order of the queue is that of the create revisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from leasehold.concurrency.errors import PlaceLost
from leasehold.concurrency.keys import unique_key
from leasehold.concurrency.session import Session
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
    prefix_end,
)

# How many of the nearest keys ahead are read, and compared when the turn has come.
WINDOW = 16


class Place(Struct, frozen=True):
    """An own key in a queue. `revision` is its create revision: its rank in the queue, and the fencing token."""

    key: bytes
    revision: int

    def exists(self) -> Compare:
        """True while this key exists with this create revision; a later key of the same name does not count."""
        return Compare(self.key, CompareTarget.CREATE, CompareResult.EQUAL, self.revision)


def create_compare(key: bytes, revision: int) -> Compare:
    return Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, revision)


def first_created(prefix: bytes) -> Range:
    """A read of the first key of a queue."""
    return Range(prefix, prefix_end(prefix), limit=1, sort_order=SortOrder.ASCEND, sort_target=SortTarget.CREATE)


def last_created(prefix: bytes, limit: int, *, before: int = 0, values: bool = False) -> Range:
    """A read of the last keys of a queue, newest first; with `before`, of those created before that revision."""
    return Range(
        prefix,
        prefix_end(prefix),
        limit=limit,
        sort_order=SortOrder.DESCEND,
        sort_target=SortTarget.CREATE,
        keys_only=not values,
        max_create_revision=max(before - 1, 0),
    )


def kvs_of(result: TxnResult, index: int) -> tuple[KeyValue, ...]:
    """The keys read by operation `index` of a transaction."""
    answer = result.results[index]
    return answer.kvs if isinstance(answer, RangeResult) else ()


class Predecessors(Struct, frozen=True):
    """The keys ahead of a place, the nearest first; `all_known` if there are no others."""

    header: Header
    kvs: tuple[KeyValue, ...]
    all_known: bool

    @property
    def fill_window(self) -> bool:
        """Whether the next key in the queue may not know all keys ahead of it."""
        return len(self.kvs) >= WINDOW

    def valid_at(self, since: int) -> bool:
        """Whether a watch from revision `since` sees every change after this read."""
        return since <= self.header.revision + 1

    def only_holder(self) -> Predecessors:
        """The same, when the nearest key belongs to the holder of the lock: then no other key is ahead."""
        return Predecessors(self.header, self.kvs[:1], all_known=True)

    def have_left(self) -> list[Compare]:
        """True when all of them have left. A key that was created again, behind, does not count."""
        return [Compare(kv.key, CompareTarget.CREATE, CompareResult.NOT_EQUAL, kv.create_revision) for kv in self.kvs]


def predecessors_of(revision: int, header: Header, newest: tuple[KeyValue, ...]) -> Predecessors:
    """The keys ahead of the place created at `revision`, from the newest keys of the queue."""
    older = tuple(kv for kv in newest if kv.create_revision < revision)
    return Predecessors(header, older[:WINDOW], len(older) <= WINDOW)


class Entered(Struct, frozen=True):
    """The answer to `enter`: the place, the key if it existed before, the keys ahead if they were read."""

    place: Place
    header: Header
    existing: KeyValue | None
    ahead: Predecessors | None

    def is_mine(self, session: Session) -> bool:
        """Whether the key belongs to this session: created just now, or by a request whose answer was lost."""
        return self.existing is None or self.existing.lease == session.lease_id


async def enter(
    session: Session, key: bytes, value: bytes = b"", *, queue: bytes = b"", values: bool = False
) -> Entered:
    """Queue up: create `key` under the session's lease unless it exists. Leaves nothing behind if it fails.

    The same transaction reads the keys ahead in `queue`, with their values if `values`.

    The request is never interrupted. A cancelled caller waits, for a limited time, until the outcome is known and the
    key is deleted again. If the request were interrupted, the key could still be created later.
    """
    entering = session.spawn(_enter(session, key, value, queue, values))
    try:
        return await asyncio.shield(entering)
    except asyncio.CancelledError:
        await session.finish(_withdraw(session, entering))
        raise


async def _enter(session: Session, key: bytes, value: bytes, queue: bytes, values: bool) -> Entered:
    then: list[Op] = [Put(key, value, lease=session.lease_id)]
    if queue:
        then.append(last_created(queue, WINDOW + 2, values=values))  # the new key itself, and one more than a window
    own_keys = session.own_keys
    async with own_keys.exclusive(key):
        result = await session.settle(
            lambda: session.coord.txn([create_compare(key, 0)], then, [Range(key)]),
            on_unknown=lambda: own_keys.creation_unknown(key),
        )
        existing = None if result.succeeded else kvs_of(result, 0)[0]
        place = Place(key, result.header.revision if existing is None else existing.create_revision)
        own_keys.add(key, place.revision)
    ahead = predecessors_of(place.revision, result.header, kvs_of(result, 1)) if queue and existing is None else None
    return Entered(place, result.header, existing, ahead)


async def _withdraw(session: Session, entering: asyncio.Task[Entered]) -> None:
    entered = await entering
    if entered.is_mine(session):
        await leave(session, entered.place)


async def enter_unique(session: Session, prefix: bytes) -> Entered:
    """Queue up with a unique key: `prefix/<ns>`."""
    while True:
        entered = await enter(session, unique_key(prefix))
        if entered.is_mine(session):
            return entered


async def leave(session: Session, place: Place) -> Header:
    """Delete the own key with this create revision; repeated until answered, or until the lease has expired."""
    session.own_keys.remove(place.key, place.revision)
    result = await session.settle(lambda: session.coord.txn([place.exists()], [DeleteRange(place.key)]))
    return result.header


async def leave_shielded(session: Session, place: Place) -> Header:
    """`leave`, completed even if the caller is cancelled."""
    return await asyncio.shield(session.spawn(leave(session, place)))


@asynccontextmanager
async def leaving_on_failure(session: Session, place: Place) -> AsyncIterator[None]:
    """Leave the queue after any error in the body, cancellation included."""
    try:
        yield
    except BaseException:
        await session.finish(leave(session, place))
        raise


async def read_predecessors(session: Session, place: Place, queue: bytes, *, values: bool = False) -> Predecessors:
    """The keys ahead, if the own key still exists: both at one revision. `PlaceLost` if it does not."""
    newest = last_created(queue, WINDOW + 1, before=place.revision, values=values)
    result = await session.settle(lambda: session.coord.txn([place.exists()], [newest]))
    if not result.succeeded:
        raise own_key_gone(session, place)
    return predecessors_of(place.revision, result.header, kvs_of(result, 0))


def own_key_gone(session: Session, place: Place) -> PlaceLost:
    return PlaceLost(
        f"the own key {place.key.decode(errors='replace')} (revision {place.revision}) of session "
        f"{session.lease_id:x} was deleted: its lease expired, or another client deleted it; start again"
    )
