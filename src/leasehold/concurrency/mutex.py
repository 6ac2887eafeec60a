"""A fair lock over the store, with Go's keys and transactions: Go programs and `etcdctl lock` share it.

Key: `prefix/` + lease id in lower-case hex. The order is that of the create revisions.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from leasehold.concurrency.errors import Locked, LockReleased
from leasehold.concurrency.held import Held, HoldScope
from leasehold.concurrency.keys import as_bytes, lease_key
from leasehold.concurrency.place import Entered, enter, leave, leaving_on_failure, read_predecessors
from leasehold.concurrency.session import Session
from leasehold.concurrency.time_limit import time_limit
from leasehold.concurrency.turn import announce_held, turn
from leasehold.mvcc.model import Compare, Header


class Mutex:
    """`async with Mutex(session, "name") as held:` or `lock` / `unlock`.

    Tasks of one session exclude each other, too, even with several Mutex objects. The task that holds a Mutex may lock
    the same object again without waiting, as in Go; one unlock releases it.
    """

    def __init__(self, session: Session, prefix: str | bytes) -> None:
        self._session = session
        self._prefix = as_bytes(prefix) + b"/"
        self._key = lease_key(self._prefix, session.lease_id)
        self._held: Held | None = None
        self._owner: object = None
        self._local_place: asyncio.Future[None] | None = None
        self._announcing: asyncio.Task[None] | None = None
        self._scopes: dict[object, list[HoldScope]] = {}  # open `async with` blocks by task

    @property
    def key(self) -> bytes:
        """The key in the store while the lock is held; empty otherwise."""
        return self._held.key if self._held else b""

    @property
    def header(self) -> Header | None:
        """The header of the answer that granted the lock."""
        return self._held.header if self._held else None

    def is_owner(self) -> Compare:
        """A compare for the user's transactions: true only while this lock is held."""
        return self._required().is_owner()

    async def lock(self, *, timeout_s: float | None = None, owner: object = None) -> Held:
        """Wait for the lock. Raises `WaitTimeout` or `SessionLost`; then nothing is left in the store.

        `owner` may lock again without waiting; the default is the current task.
        """
        owner = owner or asyncio.current_task()
        if (again := self.held_by(owner)) is not None:
            return again
        if timeout_s is None:
            return await self._lock(owner)
        async with time_limit(timeout_s, f"lock {self._prefix.decode(errors='replace')}"):
            return await self._lock(owner)

    async def _lock(self, owner: object) -> Held:
        local_place = self._session.local.join(self._prefix)
        try:
            if not local_place.done():
                await self._session.or_lost(local_place)
            held = await self._acquire()
        except BaseException:
            self._session.local.leave(self._prefix, local_place)
            raise
        self._local_place, self._held, self._owner = local_place, held, owner
        return held

    async def try_lock(self, *, owner: object = None) -> Held:
        """Acquire the lock without waiting, or raise `Locked`."""
        owner = owner or asyncio.current_task()
        if (again := self.held_by(owner)) is not None:
            return again
        self._session.check()
        if self._session.local.occupied(self._prefix):
            raise Locked(f"{self._prefix.decode(errors='replace')} is locked by another task of this session")
        local_place = self._session.local.join(self._prefix)
        try:
            entered = await self._enter()
            async with leaving_on_failure(self._session, entered.place):
                ahead = entered.ahead or await read_predecessors(self._session, entered.place, self._prefix)
                if ahead.kvs:
                    raise Locked(f"{self._prefix.decode(errors='replace')} is locked by another session")
        except BaseException:
            self._session.local.leave(self._prefix, local_place)
            raise
        self._local_place, self._owner = local_place, owner
        self._held = Held(self._session, entered.place, entered.header)
        return self._held

    async def unlock(self) -> None:
        """Release. Compares the create revision: a repeated old unlock never removes a newer lock."""
        held = self._required()
        self._held = self._owner = None
        held.release()
        try:
            await self._leave(held)
        except asyncio.CancelledError:
            # Repeat it: the compare makes a second deletion harmless, whether the first succeeded or not.
            await self._session.finish(self._leave(held))
            raise

    def hold(self, *, timeout_s: float | None = None) -> HoldScope:
        """`async with mutex.hold(timeout_s=5) as held`: the body runs only while the lock is held."""

        async def acquire() -> Held:
            again = self.held_by(asyncio.current_task()) is not None
            held = await self.lock(timeout_s=timeout_s)
            return Held(self._session, held.place, held.header, reentrant=True) if again else held

        async def release(_held: Held) -> None:
            await self.unlock()

        return HoldScope(self._session, acquire, release)

    async def __aenter__(self) -> Held:
        scope = self.hold()
        held = await scope.__aenter__()
        self._scopes.setdefault(asyncio.current_task(), []).append(scope)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        mine = self._scopes[task]
        scope = mine.pop()
        if not mine:
            del self._scopes[task]
        await scope.__aexit__(kind, error, trace)

    def held_by(self, owner: object) -> Held | None:
        """The lock if `owner` (a task; in the sync API a thread) holds it through this object."""
        if self._held is None or owner != self._owner:
            return None
        self._session.check()
        return self._held

    def _required(self) -> Held:
        if self._held is None:
            raise LockReleased("the lock has already been released, or was never held: lock first")
        return self._held

    async def _enter(self) -> Entered:
        # Go reads the first key of the queue here. Reading the last keys instead shows which one to wait for.
        return await enter(self._session, self._key, queue=self._prefix, values=True)

    async def _leave(self, held: Held) -> None:
        """Leave the store's queue, then the local one: the next task of this session must wait for the answer."""
        if self._announcing is not None:
            # If the unlock overtook the announcement, the next holder would have to read the whole queue.
            await asyncio.wait({self._announcing})
            self._announcing = None
        try:
            await leave(self._session, held.place)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._leave_locally()
            raise
        self._leave_locally()

    def _leave_locally(self) -> None:
        local_place, self._local_place = self._local_place, None
        if local_place is not None:
            self._session.local.leave(self._prefix, local_place)

    async def _acquire(self) -> Held:
        entered = await self._enter()
        header = entered.header
        if entered.ahead is None or entered.ahead.kvs:
            async with leaving_on_failure(self._session, entered.place):
                header = await turn(self._session, entered.place, self._prefix, entered.ahead, announced=True)
            if entered.ahead is not None and entered.ahead.fill_window:
                self._announcing = self._session.spawn(announce_held(self._session, entered.place))
        return Held(self._session, entered.place, header)
