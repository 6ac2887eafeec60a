"""Group commit: records that are written together, and the callers that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from leasehold.base.errors import UnknownOutcome
from leasehold.mvcc.records import Record

# Called once, in the caller's event loop: with None when everything is on disk, else with the error.
OnSettled = Callable[[BaseException | None], None]


class Waiters:
    """Waiting callers, by event loop. Not thread-safe: filled under the engine's lock, released by the writer."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[asyncio.AbstractEventLoop, list[OnSettled]] = {}

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def add(self, loop: asyncio.AbstractEventLoop, notify: OnSettled) -> None:
        self._callbacks.setdefault(loop, []).append(notify)

    def release(self, error: BaseException | None) -> None:
        """Notify all callers: those of the running loop directly, others in their own loop."""
        for loop, callbacks in self._callbacks.items():
            if asyncio._get_running_loop() is loop:
                _notify(loop, callbacks, error)
                continue
            with suppress(RuntimeError):  # that loop is closed, and so are its callers
                loop.call_soon_threadsafe(_notify, loop, callbacks, error)


def _notify(loop: asyncio.AbstractEventLoop, callbacks: list[OnSettled], error: BaseException | None) -> None:
    for notify in callbacks:
        try:
            notify(error)
        except Exception as broken:  # the other callers still wait
            loop.call_exception_handler({"message": "a caller could not be notified of a write", "exception": broken})


class Group:
    """Records that are written together, and the waiting callers."""

    __slots__ = ("records", "revision", "waiters")

    def __init__(self, records: list[Record], revision: int, waiters: Waiters) -> None:
        self.records = records
        self.revision = revision
        self.waiters = waiters


def outcome_unknown(error: BaseException) -> UnknownOutcome:
    """The error for callers whose write failed on the disk."""
    return UnknownOutcome(f"the disk failed while this was written ({error}): read before you repeat")


def resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    """An `OnSettled` that resolves a future."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
