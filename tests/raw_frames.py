"""One end of an HTTP/2 connection that speaks frames, for what clients and servers of today never do."""

from __future__ import annotations

import asyncio
import struct

from leasehold.http2.header_codec import HeaderReader

WAIT_S = 60.0  # ends a hang, and measures nothing


class RawFrames:
    """Frames received from the peer; frames to send are written to `writer`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.headers = HeaderReader()

    async def frame(self) -> tuple[int, int, int, bytes]:
        """Kind, flags, stream, payload."""
        async with asyncio.timeout(WAIT_S):
            length_kind, flags, stream = struct.unpack(">IBI", await self.reader.readexactly(9))
            return length_kind & 0xFF, flags, stream, await self.reader.readexactly(length_kind >> 8)

    async def until(self, kind: int) -> tuple[int, int, bytes]:
        """The next frame of `kind`: flags, stream, payload."""
        while True:
            found, flags, stream, payload = await self.frame()
            if found == kind:
                return flags, stream, payload

    async def closed(self) -> bool:
        """Whether the other end hangs up."""
        async with asyncio.timeout(WAIT_S):
            await self.reader.read()
        return self.reader.at_eof()
