"""A storage host: memory that may be read and written by address over TCP.

Addresses begin at the same base in every life of a host. So when it comes back on its port, its mount overlaps that
of its earlier life and supersedes it at once: nobody is sent to memory that is no more, and what a late writer may
still hit rests in limbo. (A reader of the earlier life is caught by the object's checksum.)
"""

from __future__ import annotations

import asyncio
import mmap
import os
from zlib import crc32

import structlog

from leasehold.base.errors import InvalidArgument
from leasehold.base.limits import pool_transfer_bytes_max
from leasehold.base.units import format_bytes
from leasehold.pool.frame import ANSWER, MAGIC, REQUEST, Operation, Status
from leasehold.wire.finder import parse_address

log = structlog.get_logger()

_IDLE_S = 300.0
_BASE = 1 << 32


class Host:
    """The memory and its door. `start` binds; `endpoint` is then where others find it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.base = _BASE
        try:
            self._memory = mmap.mmap(-1, size)
        except OSError as error:
            raise InvalidArgument(
                f"segment = {format_bytes(size)}: this machine does not give so much memory ({error.strerror})"
            ) from None
        self._view = memoryview(self._memory)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.endpoint = ""
        self.read_bytes = 0
        self.written_bytes = 0

    async def start(self, listen: str) -> None:
        host, port = parse_address(listen)
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=1 << 20)
        except OSError as error:
            raise InvalidArgument(f"listen = {listen}: cannot listen there: {os.strerror(error.errno or 0)}") from None
        bound = self._server.sockets[0].getsockname()
        self.endpoint = f"{host}:{bound[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._connections):
                writer.close()
            await self._server.wait_closed()
        self._view.release()
        self._memory.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while await self._one(reader, writer):
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client has gone, or is silent: it connects again when it needs us
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; False: the stream cannot go on."""
        async with asyncio.timeout(_IDLE_S):
            head = await reader.readexactly(REQUEST.size)
        magic, operation, length, address, checksum = REQUEST.unpack(head)
        if magic != MAGIC or length > pool_transfer_bytes_max or operation not in (Operation.WRITE, Operation.READ):
            writer.write(ANSWER.pack(MAGIC, Status.BAD_REQUEST, 0, 0))
            return False
        offset = address - self.base
        inside = offset >= 0 and offset + length <= self.size
        if operation == Operation.WRITE:
            data = await reader.readexactly(length)
            status = Status.OUT_OF_BOUNDS if not inside else Status.OK
            if inside and crc32(data) != checksum:
                status = Status.BAD_CHECKSUM
            if status == Status.OK:
                self._view[offset : offset + length] = data
                self.written_bytes += length
            writer.write(ANSWER.pack(MAGIC, status, 0, 0))
        elif inside:
            data = bytes(self._view[offset : offset + length])
            self.read_bytes += length
            writer.write(ANSWER.pack(MAGIC, Status.OK, length, crc32(data)))
            writer.write(data)
        else:
            writer.write(ANSWER.pack(MAGIC, Status.OUT_OF_BOUNDS, 0, 0))
        return True
