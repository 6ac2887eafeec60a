"""A TCP proxy between a client and a server, for the faults of networks: delay, silence, cut.

async with TcpProxy("127.0.0.1:2379") as proxy:
    client = await leasehold.connect(f"etcd://{proxy.endpoint}")
    proxy.silence()   # connections stay open, nothing passes: a half-open network
    proxy.cut()       # connections are reset, new ones refused
    proxy.heal()
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65_536
# Closing with a linger of zero sends a reset instead of an orderly end.
_RESET = struct.pack("ii", 1, 0)


class TcpProxy:
    """Forwards to `target` (`host:port`) from a loopback port of its own, as far as the faults allow."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host.strip("[]"), int(port))
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._delay_s = 0.0
        self._refusing = False

    @property
    def endpoint(self) -> str:
        if self._server is None:
            raise RuntimeError("the proxy has not been started: use it with `async with`")
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def delay(self, delay_s: float) -> None:
        """Delay all data, in both directions."""
        self._delay_s = delay_s

    def silence(self) -> None:
        """Silently drop all data: connections stay open, new ones are accepted and stay silent."""
        self._flowing.clear()

    def cut(self) -> None:
        """Reset all connections, and every new one."""
        self._refusing = True
        for writer in list(self._connections):
            _reset(writer)

    def heal(self) -> None:
        """Remove all faults, and deliver held data."""
        self._refusing = False
        self._delay_s = 0.0
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            _reset(writer)
            return
        await self._flowing.wait()
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        pair = {writer, upstream_writer}
        self._connections |= pair
        try:
            await asyncio.gather(self._pump(reader, upstream_writer), self._pump(upstream_reader, writer))
        finally:
            self._connections -= pair
            for end in pair:
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while data := await reader.read(CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in list(self._connections):
            writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.close()
