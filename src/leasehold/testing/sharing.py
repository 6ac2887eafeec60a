"""Servers that a whole test session shares. If one stops, the current test fails, and the server is started again.

Otherwise every later test that uses it would wait until its timeout, and none would show the cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from leasehold.testing.process import ServerFailed, ServerProcess

# etcd ends its log with the stack of a goroutine: long, with the reason above it.
LOG_LINES = 60
_shared: list[ServerProcess] = []


@contextmanager
def shared(*servers: ServerProcess) -> Iterator[None]:
    """Share running `servers` between tests that do not harm them; the pytest plugin restarts them."""
    _shared.extend(servers)
    try:
        yield
    finally:
        for server in servers:
            _shared.remove(server)


def revive_ended() -> list[str]:
    """Restart the servers that stopped, on their data and ports. Returns the end of the log of each."""
    found: list[str] = []
    for server in _shared:
        if server.running:
            continue
        found.append(f"the shared {server.name} stopped; its log ends with:\n{server.log_tail(LOG_LINES)}")
        try:
            server.start()
        except ServerFailed as error:
            found.append(f"and it could not be started again: {error}")
    return found
