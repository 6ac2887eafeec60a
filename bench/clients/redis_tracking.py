"""A small asyncio client for Redis with client-side caching (RESP3, `CLIENT TRACKING`), as lean as ours.

redis-py refuses to track with servers older than 7.4, so this client implements the protocol itself. Replies and
invalidations arrive in order on one connection, so a reply is cached when it is read and dropped when it is
invalidated. It is not coherent: between a write and the arrival of the invalidation it serves the old value.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

Reply = bytes | int | None | list["Reply"]


class Incomplete(Exception):
    """More bytes are needed."""


def parse(data: bytes, at: int) -> tuple[str, Reply, int]:
    """One RESP3 value: its kind, what it is, where the next begins."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise Incomplete
    kind, head, at = chr(data[at]), data[at + 1 : end], end + 2
    if kind == "$":
        size = int(head)
        if size < 0:
            return kind, None, at
        if len(data) < at + size + 2:
            raise Incomplete
        return kind, data[at : at + size], at + size + 2
    if kind in "*>%~":
        items: list[Reply] = []
        for _ in range(int(head) * (2 if kind == "%" else 1)):
            _, item, at = parse(data, at)
            items.append(item)
        return kind, items, at
    if kind == "-":
        raise ConnectionError(head.decode())
    return kind, None if kind == "_" else head, at


class RedisClient(asyncio.Protocol):
    """`tracked`: values are kept until the server says that they have changed."""

    def __init__(self, tracked: bool) -> None:
        self.tracked = tracked
        self.kept: dict[bytes, Reply] = {}
        self._waiting: deque[tuple[asyncio.Future[Reply], bytes | None]] = deque()
        self._rest = b""
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, port: int, tracked: bool) -> RedisClient:
        _, client = await asyncio.get_running_loop().create_connection(lambda: cls(tracked), "127.0.0.1", port)
        await client._call(b"HELLO", b"3")
        if tracked:
            await client._call(b"CLIENT", b"TRACKING", b"ON")
        return client

    async def get(self, key: bytes) -> Reply:
        if key in self.kept:
            return self.kept[key]
        return await self._call(b"GET", key, keep=key if self.tracked else None)

    async def put(self, key: bytes, value: bytes) -> Reply:
        self.kept.pop(key, None)
        return await self._call(b"SET", key, value)

    def close(self) -> None:
        self._transport.close()

    def _call(self, *words: bytes, keep: bytes | None = None) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting.append((future, keep))
        parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
        self._transport.write(b"".join(parts))
        return future

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        while at < len(data):
            try:
                kind, value, at = parse(data, at)
            except Incomplete:
                break
            if kind == ">":
                self._invalidated(cast("list[Reply]", value))
                continue
            future, keep = self._waiting.popleft()
            if keep is not None:
                self.kept[keep] = value
            if not future.done():
                future.set_result(value)
        self._rest = data[at:]

    def _invalidated(self, push: list[Reply]) -> None:
        if push[0] == b"invalidate":
            if push[1] is None:  # the server has flushed everything
                self.kept.clear()
            for key in cast("list[bytes]", push[1] or []):
                self.kept.pop(key, None)
