"""A fair lock for many readers or one writer, with the keys of Go's recipe: `prefix/read/<ns>`, `prefix/write/<ns>`.

Fair: a reader waits for earlier writers, a writer for all earlier readers and writers. So neither starves the other.
"""

from __future__ import annotations

from leasehold.concurrency.errors import LockReleased
from leasehold.concurrency.held import Held, HoldScope
from leasehold.concurrency.keys import as_bytes
from leasehold.concurrency.place import enter_unique, leave_shielded, leaving_on_failure
from leasehold.concurrency.session import Session
from leasehold.concurrency.time_limit import time_limit
from leasehold.concurrency.turn import turn


class RWLock:
    """`async with rwlock.read() as held:` and `async with rwlock.write() as held:`.

    Every acquisition has its own key, so one object serves any number of tasks.
    """

    def __init__(self, session: Session, prefix: str | bytes) -> None:
        self._session = session
        self._prefix = as_bytes(prefix)

    def read(self, *, timeout_s: float | None = None) -> HoldScope:
        """Hold the lock for reading, shared with other readers, during the body."""
        return HoldScope(self._session, lambda: self.rlock(timeout_s=timeout_s), self.unlock)

    def write(self, *, timeout_s: float | None = None) -> HoldScope:
        """Hold the lock for writing, exclusively, during the body."""
        return HoldScope(self._session, lambda: self.lock(timeout_s=timeout_s), self.unlock)

    async def rlock(self, *, timeout_s: float | None = None) -> Held:
        """Wait until all earlier writers have left."""
        return await self._acquire(b"/read", b"/write", timeout_s)

    async def lock(self, *, timeout_s: float | None = None) -> Held:
        """Wait until all earlier readers and writers have left."""
        return await self._acquire(b"/write", b"/", timeout_s)

    async def unlock(self, held: Held) -> None:
        """Release a lock from `rlock` or `lock`; a second time raises `LockReleased`."""
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
