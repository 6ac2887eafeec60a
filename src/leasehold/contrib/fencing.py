"""The fencing token of the current job, for code that runs while one instance of a fleet holds a name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from leasehold.base.errors import NotHeld

_token: ContextVar[int | None] = ContextVar("leasehold_fencing_token", default=None)
_scheduled_s: ContextVar[float | None] = ContextVar("leasehold_scheduled_time", default=None)


def fencing_token() -> int:
    """The token of the leadership under which this code runs. It grows with every new holder of the name.

    Send it with every write. A resource that refuses a lower token than the highest it has seen is safe even from an
    instance that was frozen and has woken up.
    """
    token = _token.get()
    if token is None:
        raise NotHeld("no fencing token here: call this inside `only_one`, or inside a job of one of the schedulers")
    return token


def scheduled_time() -> float:
    """The time of the tick for which this job runs, in seconds since 1970. No other job of the fleet has it."""
    at_s = _scheduled_s.get()
    if at_s is None:
        raise NotHeld("no scheduled time here: call this inside a job of one of the schedulers")
    return at_s


@contextmanager
def fenced(token: int, scheduled_s: float | None = None) -> Iterator[None]:
    """Set the token, and the time of the tick, for the code in the block."""
    before, before_s = _token.set(token), _scheduled_s.set(scheduled_s)
    try:
        yield
    finally:
        _token.reset(before)
        _scheduled_s.reset(before_s)
