"""Holding something: the token, the local check, and a body that ends before the lease can."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from leasehold.base.errors import LeaseholdError, NotHeld, SessionLost
from leasehold.concurrency.session import Session
from leasehold.concurrency.wait import Place
from leasehold.mvcc.model import Compare, Header


class Held:
    """Proof of a hold: what `async with mutex as held` gives.

    `token` is the create revision of the own key. It grows with every hold of the same name, so a resource that
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
        over = ", released" if self._released else ""
        return f"<Held {self.key.decode(errors='replace')} token={self.token}{over}>"

    @property
    def place(self) -> Place:
        """The own key and its create revision."""
        return Place(self.key, self.token)

    @property
    def released(self) -> bool:
        """Whether it was given back."""
        return self._released

    def check(self) -> None:
        """Raise once holding is no longer certain. Local: no round trip, from any thread.

        It answers for this moment. What is written elsewhere afterwards is protected by `token` or `is_owner()`.
        """
        self._session.check()
        if self._released or not self._session.doubts.owns(self.key, self.token):
            raise NotHeld(f"{self.key.decode(errors='replace')} was released: acquire it again")

    def is_owner(self) -> Compare:
        """A compare for one's own transactions: holds only while this very hold stands in the store."""
        return self.place.stands()

    def release(self) -> None:
        """Say that it is no longer held; for the recipes."""
        self._released = True


class Holding:
    """`async with`: acquire, run the body, release. The body is cancelled when the session is lost.

    A cancellation that comes from the loss turns into `SessionLost` on the way out; anybody else's passes through.
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
        # A body that failed by itself keeps its own error; one that ended normally must learn that it was not alone.
        if lost is not None and (ours or kind is None):
            raise lost from error

    def _interrupt(self, _loss: SessionLost) -> None:
        self._interrupted = True
        self._task.cancel("the session is lost")

    async def _take_back_cancellation(self, kind: type[BaseException] | None) -> bool:
        """Whether the body was ended by our own cancellation, which is over then."""
        if not self._interrupted:
            return False
        others_too = self._task.uncancel() > self._cancelling_before
        if kind is not asyncio.CancelledError:
            try:
                await asyncio.sleep(0)  # the body ended before it was delivered: take it here
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
