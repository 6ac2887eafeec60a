"""A store is one process's: after a fork there would be two writers of one log, or two stores where there was one.

The child is told so, and lets go of the parent's files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakSet

from leasehold.coord.errors import ForkedClient

if TYPE_CHECKING:
    from leasehold.store.engine import Engine

_engines: WeakSet[Engine] = WeakSet()


def watch_over(engine: Engine) -> None:
    """Have `engine` refuse everything in children of this process."""
    _engines.add(engine)


def _after_fork_in_child() -> None:
    for engine in list(_engines):
        engine.forsake(ForkedClient("the store was opened before a fork, and is the parent's: open one in the child"))
    _engines.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
