"""A fair lock over the store, with Go's keys and transactions: Go programs and `etcdctl lock` share it.

Key: `prefix/` + lease id in lower-case hex. The order is that of the create revisions.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from leasehold.concurrency.errors import Locked, LockReleased
from leasehold.concurrency.held import Held, Holding
from leasehold.concurrency.keys import as_bytes, lease_key
from leasehold.concurrency.session import Session
from leasehold.concurrency.wait import (
    Entered,
    enter,
    leave,
    leaving_on_failure,
    look,
    mark_held,
    time_limit,
    turn,
)
from leasehold.mvcc.model import Compare, Header


class Mutex:
    """`async with Mutex(session, "name") as held:` or `lock` / `unlock`.

    Tasks of one session exclude each other too, through however many Mutex objects. The task that holds a Mutex may
    lock the same object again and returns at once, as in Go; one unlock releases.
    """

    def __init__(self, session: Session, prefix: str | bytes) -> None:
        self._session = session
        self._prefix = as_bytes(prefix) + b"/"
        self._key = lease_key(self._prefix, session.lease_id)
        self._held: Held | None = None
        self._owner: object = None
        self._line: asyncio.Future[None] | None = None
        self._marking: asyncio.Task[None] | None = None
        self._holdings: dict[object, list[Holding]] = {}  # by task: whose block it is that ends

    @property
    def key(self) -> bytes:
        """The own key in the store while held; empty otherwise."""
        return self._held.key if self._held else b""

    @property
    def header(self) -> Header | None:
        """The header of the answer that gave the lock."""
        return self._held.header if self._held else None

    def is_owner(self) -> Compare:
        """A compare for one's own transactions: holds only while this very hold stands."""
        return self._required().is_owner()

    async def lock(self, *, timeout_s: float | None = None, owner: object = None) -> Held:
        """Wait for the lock. Raises `WaitTimeout` or `SessionLost`; then nothing is left in the store.

        `owner` is who may lock again without waiting: the current task unless told otherwise.
        """
        owner = owner or asyncio.current_task()
        if (again := self.held_by(owner)) is not None:
            return again
        if timeout_s is None:
            return await self._lock(owner)
        async with time_limit(timeout_s, f"lock {self._prefix.decode(errors='replace')}"):
            return await self._lock(owner)

    async def _lock(self, owner: object) -> Held:
        line = self._session.local.join(self._prefix)
        try:
            if not line.done():
                await self._session.or_lost(line)
            held = await self._acquire()
        except BaseException:
            self._session.local.leave(self._prefix, line)
            raise
        self._line, self._held, self._owner = line, held, owner
        return held

    async def try_lock(self, *, owner: object = None) -> Held:
        """The lock, or `Locked` at once."""
        owner = owner or asyncio.current_task()
        if (again := self.held_by(owner)) is not None:
            return again
        self._session.check()
        if self._session.local.occupied(self._prefix):
            raise Locked(f"{self._prefix.decode(errors='replace')} is locked by another task of this session")
        local = self._session.local.join(self._prefix)
        try:
            entered = await self._enter()
            async with leaving_on_failure(self._session, entered.place):
                line = entered.line or await look(self._session, entered.place, self._prefix)
                if line.ahead:
                    raise Locked(f"{self._prefix.decode(errors='replace')} is locked by another session")
        except BaseException:
            self._session.local.leave(self._prefix, local)
            raise
        self._line, self._owner = local, owner
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
            # Said again: the compare makes a second one harmless, whatever became of the first.
            await self._session.finish(self._leave(held))
            raise

    def hold(self, *, timeout_s: float | None = None) -> Holding:
        """`async with mutex.hold(timeout_s=5) as held`: the body runs only with the lock, and only as long."""

        async def acquire() -> Held:
            again = self.held_by(asyncio.current_task()) is not None
            held = await self.lock(timeout_s=timeout_s)
            return Held(self._session, held.place, held.header, reentrant=True) if again else held

        async def release(_held: Held) -> None:
            await self.unlock()

        return Holding(self._session, acquire, release)

    async def __aenter__(self) -> Held:
        holding = self.hold()
        held = await holding.__aenter__()
        self._holdings.setdefault(asyncio.current_task(), []).append(holding)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        mine = self._holdings[task]
        holding = mine.pop()
        if not mine:
            del self._holdings[task]
        await holding.__aexit__(kind, error, trace)

    def held_by(self, owner: object) -> Held | None:
        """The hold that `owner` (a task, in the sync face a thread) has through this object, if it has one."""
        if self._held is None or owner != self._owner:
            return None
        self._session.check()
        return self._held

    def _required(self) -> Held:
        if self._held is None:
            raise LockReleased("the lock has already been released, or was never held: lock first")
        return self._held

    async def _enter(self) -> Entered:
        # Go reads the head of the queue here; a new key reads the end of it, which tells at once whom to wait for.
        return await enter(self._session, self._key, queue=self._prefix, marked=True)

    async def _leave(self, held: Held) -> None:
        """The next task of this session goes on only when the store has answered."""
        if self._marking is not None:
            # Overtaken by its own unlock the mark would say nothing, and the next holder had to read the whole line.
            await asyncio.wait({self._marking})
            self._marking = None
        try:
            await leave(self._session, held.place)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._leave_line()
            raise
        self._leave_line()

    def _leave_line(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._session.local.leave(self._prefix, line)

    async def _acquire(self) -> Held:
        entered = await self._enter()
        header = entered.header
        if entered.line is None or entered.line.ahead:
            async with leaving_on_failure(self._session, entered.place):
                header = await turn(self._session, entered.place, self._prefix, entered.line, marked=True)
            if entered.line is not None and entered.line.is_long:
                self._marking = self._session.spawn(mark_held(self._session, entered.place))
        return Held(self._session, entered.place, header)
