"""Ports for test servers. No other process gets them, even while their server is down.

An outgoing connection may take a port from `bind(0)` before its server starts or while it is killed, so these ports are
below the range for outgoing connections. Each test process locks blocks of its own for its lifetime, so that no other
test process picks a port that is not bound yet.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

# Above the ports that Mooncake's transfer engine chooses from (up to 17,000), below those of outgoing connections.
LOWEST, HIGHEST = 17_100, 32_100
BLOCK = 300


def free_ports(count: int) -> list[int]:
    """`count` distinct ports of 127.0.0.1 that were not returned before and on which nothing listens."""
    global _given, _given_by
    with _giving:  # clusters are started in parallel threads
        if _given_by != os.getpid():  # a forked child has blocks of its own
            _given, _given_by = _ports(), os.getpid()
        return [next(_given) for _ in range(count)]


def listens(port: int) -> bool:
    """Whether a server accepts connections on this port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _ports() -> Iterator[int]:
    """Each port once; after the last one, start over."""
    blocks: list[range] = []
    for block in _blocks():
        blocks.append(block)
        yield from filter(_is_free, block)
    while blocks:
        for block in blocks:
            yield from filter(_is_free, block)
    raise RuntimeError(f"other processes hold all ports from {LOWEST} to {HIGHEST}: stop some of them")


def _blocks() -> Iterator[range]:
    """Blocks that no other process has; each is locked until this process exits."""
    folder = Path(tempfile.gettempdir()) / f"leasehold-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for first in range(LOWEST, HIGHEST, BLOCK):
        lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            yield range(first, first + BLOCK)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_giving = threading.Lock()
_given: Iterator[int] = iter(())
_given_by = 0
