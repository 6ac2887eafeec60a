"""Where `leasehold` begins: before anything is loaded, Ctrl-C has nothing to undo and nothing to tell."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Load the command line and run it."""
    leave_at_once()
    from leasehold.cli.main import main as run

    run()


def leave_at_once() -> None:
    """End here and now when told to, for as long as there is nothing to undo.

    An exception would be raised wherever Python is just then: in the middle of an import it may be lost.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)


def _leave(number: int, frame: object) -> None:
    os._exit(128 + number)
