"""Where `leasehold` begins: before anything is loaded, Ctrl-C has nothing to undo and nothing to tell."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Load the command line and run it."""
    signal.signal(signal.SIGINT, _leave)
    from leasehold.cli.main import main as run

    run()


def _leave(number: int, frame: object) -> None:
    os._exit(128 + number)
