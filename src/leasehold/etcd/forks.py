"""gRPC does not live through a fork: its threads stay with the parent, and in the child every call would hang.

So a child of a process that had used it is told, instead of being left to wait.
"""

from __future__ import annotations

import os

from leasehold.coord.errors import ForkedClient

_used = False
_lost_in_fork = False


def check_grpc_usable() -> None:
    """Before gRPC is used; raises `ForkedClient` in a child whose parent had used it before the fork."""
    global _used
    if _lost_in_fork:
        raise ForkedClient(
            "gRPC was in use before the fork, and does not work in the child: open the first client after the fork, "
            "or start children with multiprocessing's 'spawn' or 'forkserver'"
        )
    _used = True


def _after_fork_in_child() -> None:
    global _lost_in_fork
    _lost_in_fork = _lost_in_fork or _used


os.register_at_fork(after_in_child=_after_fork_in_child)
