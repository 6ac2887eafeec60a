"""The fencing token of the current job, for code that runs while one instance of a fleet holds a name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from leasehold.base.errors import NotHeld

_token: ContextVar[int | None] = ContextVar("leasehold_fencing_token", default=None)


def fencing_token() -> int:
    """The token of the leadership under which this code runs. It grows with every new holder of the name.

    Send it with every write. A resource that refuses a lower token than the highest it has seen is safe even from an
    instance that was frozen and has woken up.
    """
    token = _token.get()
    if token is None:
        raise NotHeld("no fencing token here: call this inside `only_one`, or inside a job of one of the schedulers")
    return token


@contextmanager
def fenced(token: int) -> Iterator[None]:
    """Set the token for the code in the block."""
    before = _token.set(token)
    try:
        yield
    finally:
        _token.reset(before)
