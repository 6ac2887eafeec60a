"""Group commit: the records that are written together, and everybody who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from leasehold.base.errors import UnknownOutcome
from leasehold.mvcc.records import Record

# Told once, in the event loop of who waits: None when everything is on the disk, else why that is not known.
Tell = Callable[[BaseException | None], None]


class Waiters:
    """Who waits, by event loop. Not thread-safe: filled under the engine's lock, released by whoever took it away."""

    __slots__ = ("_tells",)

    def __init__(self) -> None:
        self._tells: dict[asyncio.AbstractEventLoop, list[Tell]] = {}

    def __bool__(self) -> bool:
        return bool(self._tells)

    def add(self, loop: asyncio.AbstractEventLoop, tell: Tell) -> None:
        self._tells.setdefault(loop, []).append(tell)

    def release(self, error: BaseException | None) -> None:
        """Tell them all: those of this very loop at once, others in their own."""
        for loop, tells in self._tells.items():
            if asyncio._get_running_loop() is loop:
                _tell(loop, tells, error)
                continue
            with suppress(RuntimeError):  # that loop has ended, and its waiters with it
                loop.call_soon_threadsafe(_tell, loop, tells, error)


def _tell(loop: asyncio.AbstractEventLoop, tells: list[Tell], error: BaseException | None) -> None:
    for tell in tells:
        try:
            tell(error)
        except Exception as broken:  # of one of them: the others wait as well
            loop.call_exception_handler({"message": "somebody could not be told of a write", "exception": broken})


class Group:
    """Records that are written together, and who waits for them."""

    __slots__ = ("records", "revision", "waiters")

    def __init__(self, records: list[Record], revision: int, waiters: Waiters) -> None:
        self.records = records
        self.revision = revision
        self.waiters = waiters


def in_doubt(error: BaseException) -> UnknownOutcome:
    """What those are told whose write the disk did not take."""
    return UnknownOutcome(f"the disk failed while this was written ({error}): read before you repeat")


def resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    """A `Tell` of who awaits a future."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
