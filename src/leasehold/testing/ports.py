"""Ports for servers of tests: below the range from which the system takes ports for outgoing connections.

A port from `bind(0)` may be taken by any outgoing connection while its server is down, so that a killed server
could not come back on it. These stay free, unless another test picks the same one; then the start is tried again.
"""

from __future__ import annotations

import random
import socket

LOWEST, HIGHEST = 10_000, 32_000


def free_ports(count: int) -> list[int]:
    """`count` distinct ports on which nothing listens on loopback."""
    found: list[int] = []
    choose = random.SystemRandom()
    while len(found) < count:
        port = choose.randrange(LOWEST, HIGHEST)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def listens(port: int) -> bool:
    """Whether somebody takes connections on this port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
