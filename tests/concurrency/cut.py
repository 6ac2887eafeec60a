"""A TCP proxy that can be cut: it goes on accepting and is silent in both directions until it is healed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class CutProxy:
    """`async with CutProxy(endpoint) as proxy`: connect to `proxy.endpoint`."""

    def __init__(self, target: str) -> None:
        host, _, port = target.partition(":")
        self._target = host, int(port)
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = ""

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        """Bytes that were sent meanwhile arrive late, as after a real cut."""
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._open.wait()
            there, back = await asyncio.open_connection(*self._target)
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
