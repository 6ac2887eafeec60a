"""A store belongs to one process: after a fork there would be two writers of one log, or two copies of one store.

In the child every call is rejected, and the parent's files are closed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakSet

from leasehold.coord.errors import ForkedClient

if TYPE_CHECKING:
    from leasehold.store.engine import Engine

_engines: WeakSet[Engine] = WeakSet()


def register(engine: Engine) -> None:
    """Have `engine` reject every call in forked children of this process."""
    _engines.add(engine)


def _after_fork_in_child() -> None:
    for engine in list(_engines):
        engine.abandon_in_child(
            ForkedClient("the store was opened before a fork and belongs to the parent: open one in the child")
        )
    _engines.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
