"""A held lock: its token, the local check, and a scope whose body ends before the lease can expire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from leasehold.base.errors import LeaseholdError, NotHeld, SessionLost
from leasehold.concurrency.place import Place
from leasehold.concurrency.session import Session
from leasehold.mvcc.model import Compare, Header


class Held:
    """A held lock, permit or leadership, as given by `async with mutex as held`.

    `token` is the create revision of its key. It grows with every acquisition of the same name. So a resource that
    refuses a lower token than the highest it has seen is safe even from a holder that was frozen.
    """

    __slots__ = ("_released", "_session", "header", "key", "reentrant", "token")

    def __init__(self, session: Session, place: Place, header: Header, *, reentrant: bool = False) -> None:
        self._session = session
        self._released = False
        self.key = place.key
        self.token = place.revision
        self.header = header
        self.reentrant = reentrant

    def __repr__(self) -> str:
        state = ", released" if self._released else ""
        return f"<Held {self.key.decode(errors='replace')} token={self.token}{state}>"

    @property
    def place(self) -> Place:
        """Its key and create revision."""
        return Place(self.key, self.token)

    @property
    def released(self) -> bool:
        """Whether it was released."""
        return self._released

    def check(self) -> None:
        """Raise `NotHeld` if it may not be held any more. Local: no round trip, callable from any thread.

        The result is valid for this moment. Protect later writes elsewhere with `token` or `is_owner()`.
        """
        self._session.check()
        if self._released or not self._session.own_keys.owns(self.key, self.token):
            raise NotHeld(f"{self.key.decode(errors='replace')} was released: acquire it again")

    def is_owner(self) -> Compare:
        """A compare for the user's transactions: true only while this key exists in the store."""
        return self.place.exists()

    def release(self) -> None:
        """Note that it is no longer held; for the recipes."""
        self._released = True


class HoldScope:
    """`async with`: acquire, run the body, release. The body is cancelled when the session is lost.

    That cancellation becomes `SessionLost` at the end of the block; any other cancellation passes through.
    """

    def __init__(
        self,
        session: Session,
        acquire: Callable[[], Awaitable[Held]],
        release: Callable[[Held], Awaitable[None]],
    ) -> None:
        self._session = session
        self._acquire = acquire
        self._release = release
        self._held: Held | None = None
        self._interrupted = False

    async def __aenter__(self) -> Held:
        self._held = await self._acquire()
        task = asyncio.current_task()
        assert task is not None  # we are inside a coroutine that a task runs
        self._task: asyncio.Task[object] = task
        self._cancelling_before = task.cancelling()
        self._unsubscribe = self._session.on_lost(self._interrupt)
        return self._held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held = self._held
        assert held is not None  # __aenter__ has succeeded
        self._unsubscribe()
        ours = await self._take_back_cancellation(kind)
        lost = self._why_lost()
        if held.reentrant:
            held.release()
        else:
            await self._give_back(held, quietly=lost is not None or kind is not None)
        # A body that failed keeps its error; one that succeeded must learn that the lock may have been lost.
        if lost is not None and (ours or kind is None):
            raise lost from error

    def _interrupt(self, _loss: SessionLost) -> None:
        self._interrupted = True
        self._task.cancel("the session is lost")

    async def _take_back_cancellation(self, kind: type[BaseException] | None) -> bool:
        """Withdraw our own cancellation; returns whether it ended the body."""
        if not self._interrupted:
            return False
        others_too = self._task.uncancel() > self._cancelling_before
        if kind is not asyncio.CancelledError:
            try:
                await asyncio.sleep(0)  # the body ended before the cancellation was delivered: receive it here
            except asyncio.CancelledError:
                if others_too:
                    raise
        return kind is asyncio.CancelledError and not others_too

    def _why_lost(self) -> SessionLost | None:
        try:
            self._session.check()
        except SessionLost as loss:
            return loss
        return None

    async def _give_back(self, held: Held, *, quietly: bool) -> None:
        try:
            if not held.released:
                await self._release(held)
        except LeaseholdError:
            if not quietly:
                raise
