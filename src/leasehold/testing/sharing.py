"""Servers that a whole test session shares: one that ends is told at the test that ended it, and started again.

Otherwise every later test that uses it would wait for it until its timeout, and none would say why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from leasehold.testing.process import ServerFailed, ServerProcess

# etcd's last words are the stack of a goroutine: long, with the reason above it.
LAST_WORDS_LINES = 60
_shared: list[ServerProcess] = []


@contextmanager
def shared(*servers: ServerProcess) -> Iterator[None]:
    """`servers`, which run, are shared by tests that are to do them no harm; the fixtures' plugin looks after them."""
    _shared.extend(servers)
    try:
        yield
    finally:
        for server in servers:
            _shared.remove(server)


def revive_ended() -> list[str]:
    """Start those again that have ended, on their data and their ports; for each of them, its last words."""
    told: list[str] = []
    for server in _shared:
        if server.running:
            continue
        told.append(f"the shared {server.name} has exited; its log ends with:\n{server.log_tail(LAST_WORDS_LINES)}")
        try:
            server.start()
        except ServerFailed as error:
            told.append(f"and it could not be started again: {error}")
    return told
