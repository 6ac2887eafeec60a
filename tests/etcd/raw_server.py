"""A server on the level of frames, for behaviour that is rare in real servers: it does only what a test scripts."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hpack import Encoder
from tests.raw_frames import WAIT_S, RawFrames

from leasehold.etcd.endpoints import Endpoint
from leasehold.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    frame,
)


class Peer(RawFrames):
    """One client's connection, at the server's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._encoder = Encoder()

    def write(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def greet(self, settings: bytes = b"") -> None:
        """Take the client's preface, and send the settings without which it does not begin."""
        async with asyncio.timeout(WAIT_S):
            assert await self.reader.readexactly(len(PREFACE)) == PREFACE
        self.write(frame(SETTINGS, 0, 0, settings))

    async def request(self) -> tuple[int, dict[bytes, bytes]]:
        """The next request's stream and headers."""
        _, stream, block = await self.until(HEADERS)
        return stream, dict(self.headers.read(block))

    def head(self, stream: int, *headers: tuple[str, str], end: bool = False) -> bytes:
        flags = END_HEADERS | (END_STREAM if end else 0)
        return frame(HEADERS, flags, stream, self._encoder.encode(headers))

    def answer(self, stream: int, message: Any) -> bytes:
        """A whole answer that went well."""
        data: bytes = message.SerializeToString()
        return (
            self.head(stream, (":status", "200"), ("content-type", "application/grpc"))
            + frame(DATA, 0, stream, struct.pack(">BI", 0, len(data)) + data)
            + self.head(stream, ("grpc-status", "0"), end=True)
        )


class RawServer:
    """Takes connections, and hands them to the test."""

    def __init__(self) -> None:
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.address = ""

    async def peer(self) -> Peer:
        """The next client that connects."""
        async with asyncio.timeout(WAIT_S):
            return await self._peers.get()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._peers.put_nowait(Peer(reader, writer))

    @classmethod
    @asynccontextmanager
    async def run(cls) -> AsyncIterator[RawServer]:
        raw = cls()
        server = await asyncio.start_server(raw._accept, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        raw.address = f"{host}:{port}"
        try:
            yield raw
        finally:
            server.close()


@asynccontextmanager
async def connected(settings: bytes = b"") -> AsyncIterator[tuple[RawServer, Peer, Endpoint]]:
    """A server, and an endpoint of the client's that is connected to it."""
    async with RawServer.run() as server:
        endpoint = Endpoint(server.address, None)
        connecting = asyncio.create_task(endpoint.ready(WAIT_S, insist=True))
        peer = await server.peer()
        await peer.greet(settings)
        assert await connecting
        try:
            yield server, peer, endpoint
        finally:
            await endpoint.close()
            peer.writer.close()
