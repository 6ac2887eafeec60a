"""The entry point of `leasehold`. Until a command is loaded, Ctrl-C has nothing to undo and exits silently."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Load the command line and run it."""
    exit_on_signals()
    from leasehold.cli.main import main as run

    run()


def exit_on_signals() -> None:
    """Exit immediately on SIGINT and SIGTERM, as long as there is nothing to undo.

    An exception would be raised wherever Python is at that moment: in the middle of an import it may be lost.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit)


def _exit(number: int, frame: object) -> None:
    os._exit(128 + number)
