"""Signals while children are started: what is blocked here is blocked in them as well, from their first moment."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Hold these signals back in this thread; one that comes meanwhile is delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
