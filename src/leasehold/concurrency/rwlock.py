"""A fair lock for many readers or one writer, with the keys of Go's recipe: `prefix/read/<ns>`, `prefix/write/<ns>`.

Fair: a reader waits for the writers that came before it, a writer for everybody who came before it. So neither
starves the other.
"""

from __future__ import annotations

from leasehold.concurrency.errors import LockReleased
from leasehold.concurrency.held import Held, Holding
from leasehold.concurrency.keys import as_bytes
from leasehold.concurrency.session import Session
from leasehold.concurrency.wait import (
    enter_unique,
    leave_shielded,
    leaving_on_failure,
    time_limit,
    turn,
)


class RWLock:
    """`async with rwlock.read() as held:` and `async with rwlock.write() as held:`.

    Every hold has a key of its own, so one object serves any number of tasks.
    """

    def __init__(self, session: Session, prefix: str | bytes) -> None:
        self._session = session
        self._prefix = as_bytes(prefix)

    def read(self, *, timeout_s: float | None = None) -> Holding:
        """Share the lock with other readers for the length of the body."""
        return Holding(self._session, lambda: self.rlock(timeout_s=timeout_s), self.unlock)

    def write(self, *, timeout_s: float | None = None) -> Holding:
        """Have the lock alone for the length of the body."""
        return Holding(self._session, lambda: self.lock(timeout_s=timeout_s), self.unlock)

    async def rlock(self, *, timeout_s: float | None = None) -> Held:
        """Wait until all writers that came before are gone."""
        return await self._acquire(b"/read", b"/write", timeout_s)

    async def lock(self, *, timeout_s: float | None = None) -> Held:
        """Wait until everybody who came before is gone."""
        return await self._acquire(b"/write", b"/", timeout_s)

    async def unlock(self, held: Held) -> None:
        """Release what `rlock` or `lock` gave; a second time raises `LockReleased`."""
        if held.released:
            raise LockReleased(f"{held.key.decode(errors='replace')} has already been released")
        held.release()
        await leave_shielded(self._session, held.place)

    async def _acquire(self, mine: bytes, wait_for: bytes, timeout_s: float | None) -> Held:
        async with time_limit(timeout_s, f"lock {self._prefix.decode(errors='replace')}"):
            entered = await enter_unique(self._session, self._prefix + mine)
            async with leaving_on_failure(self._session, entered.place):
                header = await turn(self._session, entered.place, self._prefix + wait_for)
        return Held(self._session, entered.place, header)
