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
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from msgspec import Struct

from leasehold.base.errors import LeaseholdError, Unavailable
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
    EventType,
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
# When to look again after a watch was set up. etcd takes "from now" as the revision that it has just read, plus one: if
# somebody writes before the watch is in its list, it is one from the past all the same, and silent for up to 100 ms.
LOOKS_S = (0.01, 0.02, 0.03, 0.04)
# So many places ahead are known by name, and compared by name when the turn has come.
WINDOW = 16
# The value of a mutex's key once its owner holds it, where those behind may not know all names. Go's have none.
HELD = b"held"


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


def last_created(prefix: bytes, limit: int, *, before: int = 0, values: bool = False) -> Range:
    """The end of a queue, the newest first; or the end of the part that was created before revision `before`."""
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
    """The keys that operation `index` of a transaction read."""
    answer = result.results[index]
    return answer.kvs if isinstance(answer, RangeResult) else ()


class Line(Struct, frozen=True):
    """Who is ahead of a place, the nearest first; `all_known` if nobody else is."""

    header: Header
    ahead: tuple[KeyValue, ...]
    all_known: bool

    @property
    def is_long(self) -> bool:
        """Whether whoever comes next may not know all that are ahead."""
        return len(self.ahead) >= WINDOW

    def holds_until(self, since: int) -> bool:
        """Whether this reading still holds at `since`: nothing has happened that a watch from there would not tell."""
        return since <= self.header.revision + 1

    def behind_holder(self) -> Line:
        """The same line, when the predecessor holds what is waited for: then nobody is ahead of it."""
        return Line(self.header, self.ahead[:1], all_known=True)

    def gone(self) -> list[Compare]:
        """Hold when all of them have left; one that has queued up anew, behind, does not count."""
        return [Compare(kv.key, CompareTarget.CREATE, CompareResult.NOT_EQUAL, kv.create_revision) for kv in self.ahead]


def line_before(revision: int, header: Header, newest: tuple[KeyValue, ...]) -> Line:
    """The line ahead of the place created at `revision`, from the newest keys of the queue."""
    older = tuple(kv for kv in newest if kv.create_revision < revision)
    return Line(header, older[:WINDOW], len(older) <= WINDOW)


class Entered(Struct, frozen=True):
    """The answer to `enter`: the place, the key if it stood there before, the line ahead if it was read."""

    place: Place
    header: Header
    existing: KeyValue | None
    line: Line | None

    def is_mine(self, session: Session) -> bool:
        """Whether the key is this session's: created just now, or by a request whose answer was lost."""
        return self.existing is None or self.existing.lease == session.lease_id


async def enter(
    session: Session, key: bytes, value: bytes = b"", *, queue: bytes = b"", marked: bool = False
) -> Entered:
    """Queue up: create `key` under the session's lease unless it stands already. Leaves nothing behind if it fails.

    A new key reads who is ahead of it in `queue`, in the same transaction, with the values if they are `marked`.

    The request is never interrupted: a caller that is cancelled waits (not for ever) until its outcome is known and
    the key is gone again. Interrupting it would leave the question whether the key comes into being later.
    """
    entering = session.spawn(_enter(session, key, value, queue, marked))
    try:
        return await asyncio.shield(entering)
    except asyncio.CancelledError:
        await session.finish(_withdraw(session, entering))
        raise


async def _enter(session: Session, key: bytes, value: bytes, queue: bytes, marked: bool) -> Entered:
    then: list[Op] = [Put(key, value, lease=session.lease_id)]
    if queue:
        then.append(last_created(queue, WINDOW + 2, values=marked))  # the new key itself, and one more than a window
    doubts = session.doubts
    async with doubts.alone(key):
        result = await session.settle(
            lambda: session.coord.txn([create_compare(key, 0)], then, [Range(key)]), in_doubt=lambda: doubts.arose(key)
        )
        existing = None if result.succeeded else kvs_of(result, 0)[0]
        place = Place(key, result.header.revision if existing is None else existing.create_revision)
        doubts.owned(key, place.revision)
    line = line_before(place.revision, result.header, kvs_of(result, 1)) if queue and existing is None else None
    return Entered(place, result.header, existing, line)


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
    session.doubts.left(place.key, place.revision)
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


async def turn(
    session: Session, place: Place, queue: bytes, line: Line | None = None, *, marked: bool = False
) -> Header:
    """Wait until nobody in `queue` is ahead while the own key stands; the header of the answer that showed it.

    `line` is who is ahead, if that is known already. Only the predecessor is watched (no herd), and later the own key.
    `marked` says that a value of `HELD` means in this queue what it says.
    """
    line = line or await look(session, place, queue, marked=marked)
    while line.ahead:
        predecessor = line.ahead[0]
        if marked and predecessor.value == HELD:
            line = line.behind_holder()
        async with watching_deletes(session, predecessor.key, puts_too=not line.all_known) as watches:
            if watches and (line.holds_until(watches.since) or await _unchanged(session, place, predecessor)):
                (gone,) = watches.fired
                await _gone_or_own(session, place, predecessor, gone)
                if marked and gone.done() and gone.result() == HELD:
                    line = line.behind_holder()
        if line.all_known:
            confirmed = await _compare(session, place.stands(), *line.gone())
            if confirmed.succeeded:
                return confirmed.header
        line = await look(session, place, queue, marked=marked)
    return line.header


async def _gone_or_own(session: Session, place: Place, predecessor: KeyValue, gone: asyncio.Task[bytes]) -> None:
    """Wait until the predecessor is gone, or the own key.

    At first both are looked at now and then, while the watch may be late. The own key is watched when it is clear that
    this takes longer: most waits are over before.
    """
    ahead = create_compare(predecessor.key, predecessor.create_revision)
    for pause_s in LOOKS_S:
        if await session.or_lost(gone, timeout_s=pause_s):
            return
        if not (await _compare(session, place.stands(), ahead)).succeeded:
            return
    async with watching_deletes(session, place.key) as own:
        if own and (await _compare(session, place.stands())).succeeded:
            await session.or_lost(gone, *own.fired)


async def _unchanged(session: Session, place: Place, predecessor: KeyValue) -> bool:
    same = Compare(predecessor.key, CompareTarget.MOD, CompareResult.EQUAL, predecessor.mod_revision)
    return (await _compare(session, place.stands(), same)).succeeded


async def mark_held(session: Session, place: Place) -> None:
    """Tell those behind that nobody is ahead of this place any more: they need not read the line to know it."""
    put = Put(place.key, HELD, lease=session.lease_id)
    await session.settle(lambda: session.coord.txn([place.stands()], [put]))


async def look(session: Session, place: Place, queue: bytes, *, marked: bool = False) -> Line:
    """Who is ahead, if the own key still stands: both at one revision."""
    newest = last_created(queue, WINDOW + 1, before=place.revision, values=marked)
    result = await session.settle(lambda: session.coord.txn([place.stands()], [newest]))
    if not result.succeeded:
        raise own_key_gone(session, place)
    return line_before(place.revision, result.header, kvs_of(result, 0))


async def _compare(session: Session, *compares: Compare) -> TxnResult:
    return await session.settle(lambda: session.coord.txn(compares))


def own_key_gone(session: Session, place: Place) -> PlaceLost:
    return PlaceLost(
        f"the own key {place.key.decode(errors='replace')} (revision {place.revision}) of session "
        f"{session.lease_id:x} is gone: its lease ended, or somebody deleted it; start again"
    )


class Watches(Struct, frozen=True):
    """Watches that the store has taken: `fired` has a task for each that is done when there is reason to look.

    Its result is the value that was put last before that. They are complete from revision `since` on. False if they
    could not be set up.
    """

    fired: tuple[asyncio.Task[bytes], ...]
    since: int

    def __bool__(self) -> bool:
        return bool(self.fired)


@asynccontextmanager
async def watching(
    session: Session, *keys: bytes, filters: Sequence[WatchFilter] = (), until_deleted: bool = False
) -> AsyncIterator[Watches]:
    """Watch `keys` for changes *from now on*; when that cannot be set up, after a pause, it says so."""
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


async def _all_ready(session: Session, ready: list[asyncio.Future[int]]) -> int:
    """Wait until the store has taken all watches: the revision from which they are complete, or 0 after a pause."""
    while waiting := [future for future in ready if not future.done()]:
        await session.or_lost(*waiting)
    since = [future.result() for future in ready]
    if 0 in since:
        await asyncio.sleep(WATCH_RETRY_S)
        return 0
    return max(since)


async def set_up(session: Session, stream: WatchStream) -> bool:
    """Wait until the store has taken the watch, or until the session is lost; False, after a pause, if it cannot be."""
    taken = asyncio.ensure_future(stream.ready())
    taken.add_done_callback(lambda taken: taken.cancelled() or taken.exception())  # also if nobody asks any more
    try:
        await session.or_lost(taken)
        return bool(taken.result())
    except WATCH_BROKEN:
        await asyncio.sleep(WATCH_RETRY_S)
        return False
    finally:
        taken.cancel()


def watching_deletes(session: Session, *keys: bytes, puts_too: bool = False) -> AbstractAsyncContextManager[Watches]:
    """As `watching`, for deletions only; with `puts_too`, values put before the deletion are taken note of."""
    return watching(session, *keys, filters=() if puts_too else [WatchFilter.NO_PUT], until_deleted=True)


async def _follow(stream: WatchStream, ready: asyncio.Future[int], until_deleted: bool) -> bytes:
    """Tell by `ready` from where on the watch is complete (0: it is not), then wait for something to look at."""
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
        ready.exception()  # looked at: whoever waits for it may have gone
    return value
