"""Block signals while a child process is started: the child inherits the mask from its first moment."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Block these signals in this thread; one that arrives meanwhile is delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
