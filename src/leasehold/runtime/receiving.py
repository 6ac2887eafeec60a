"""Receive from a socket such that a cancelled call has read nothing.

`loop.sock_recv` reads as soon as the socket is readable, and its caller runs in a later turn of the loop. A caller
that is cancelled in between loses these bytes. On a busy machine the two often meet.
"""

from __future__ import annotations

import asyncio
import socket


async def readable_within(sock: socket.socket, timeout_s: float | None, woken: asyncio.Event | None = None) -> bool:
    """Wait for data or end of file, without reading, or until `woken` is set; False after the timeout."""
    loop, readable = asyncio.get_running_loop(), woken if woken is not None else asyncio.Event()
    loop.add_reader(sock.fileno(), readable.set)
    try:
        async with asyncio.timeout(timeout_s):
            await readable.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(sock.fileno())
    return True


async def receive(sock: socket.socket, count: int) -> bytes:
    """Like `loop.sock_recv`, for callers that may be cancelled."""
    while True:
        try:
            return sock.recv(count)
        except (BlockingIOError, InterruptedError):
            await readable_within(sock, None)
