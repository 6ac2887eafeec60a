"""A storage host: memory that may be read and written by address over TCP.

Addresses start at the same base after every start of a host. So when a host restarts on its port, its mount overlaps
the earlier one and replaces it immediately: no client is sent to memory that no longer exists, and space that a late
writer may still write to is quarantined. (The object's checksum catches a late reader.)

Connections, bytes in flight and the time of each transfer are bounded.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
from collections import Counter
from zlib import crc32

import structlog

from leasehold.base.errors import InvalidArgument, ResourceUnavailable
from leasehold.base.limits import pool_transfer_bytes_max
from leasehold.base.measures import Labels, Measure
from leasehold.base.units import format_bytes
from leasehold.pool.admission import Admission
from leasehold.pool.budget import Budget
from leasehold.pool.frame import (
    ANSWER,
    CAPABILITY_BYTES_MAX,
    MAGIC,
    PLAIN_MAGIC,
    REQUEST,
    VERSION,
    Operation,
    Status,
)
from leasehold.pool.settings import HostSettings
from leasehold.runtime.accepting import Acceptor
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tls import Tls, serve_stream
from leasehold.wire.finder import parse_address

log = structlog.get_logger()

_EVERYWHERE = ("", "0.0.0.0", "::")
_IDLE_S = 300.0
_PIECE_BYTES = 1024 * 1024
_CHECKED_BYTES = 8 * 1024 * 1024
_BASE = 1 << 32


class Host:
    """The memory and its server. `start` binds; then `endpoint` is the address for clients."""

    def __init__(
        self,
        size: int,
        limits: HostSettings | None = None,
        tls: Tls | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.size = size
        self._tls = tls
        self._limits = limits or HostSettings()
        self._budget = Budget(self._limits.buffered_bytes)
        self.admission = admission or Admission()
        self.base = _BASE
        try:
            self._memory = mmap.mmap(-1, size)
        except OSError as error:
            raise ResourceUnavailable(
                f"segment = {format_bytes(size)}: this machine cannot provide that much memory ({error.strerror})"
            ) from None
        self._view = memoryview(self._memory)
        self._sock: socket.socket | None = None
        self._acceptor: Acceptor | None = None
        self._handshakes = TaskSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused_handshakes = 0
        self.turned_away = 0
        self.endpoint = ""
        self.read_bytes = 0
        self._written_bytes = 0
        self._writes: Counter[Status] = Counter()  # by outcome

    def measures(self) -> list[Measure]:
        """For the metrics port."""
        transferred: dict[Labels, int] = {("read",): self.read_bytes, ("write",): self._written_bytes}
        return [
            Measure.gauge("leasehold_host_segment_bytes", "memory that this host lends", self.size),
            Measure.gauge("leasehold_host_connections", "open connections", len(self._tasks)),
            Measure.counter(
                "leasehold_host_connections_turned_away", "connections closed because of the limit", self.turned_away
            ),
            Measure(
                "leasehold_host_transferred_bytes", "bytes read and written", "counter", transferred, ("operation",)
            ),
            Measure(
                "leasehold_host_writes",
                "writes by outcome; TOO_LATE is a writer whose space belongs to another put now",
                "counter",
                {(status.name,): count for status, count in self._writes.items()},
                ("outcome",),
            ),
            Measure(
                "leasehold_host_refused",
                "requests refused, by reason",
                "counter",
                {
                    (operation.name.lower(), status.name): count
                    for (operation, status), count in self.admission.refused.items()
                },
                ("operation", "reason"),
            ),
            Measure.counter(
                "leasehold_host_forged_numbers",
                "writes under a number that the master had not given out, found and forgotten",
                self.admission.forged_numbers,
            ),
        ]

    async def start(self, listen: str, advertise: str = "") -> None:
        """Bind. `advertise` is the address for clients, if it differs from `listen`."""
        host, port = parse_address(listen)
        if host in _EVERYWHERE and not advertise:
            raise InvalidArgument(
                f"listen = {listen}: clients cannot connect to {host}: give an address with --advertise"
            )
        try:
            self._sock = socket.create_server((host, port), family=_family(host), backlog=1024)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise ResourceUnavailable(f"listen = {listen}: cannot listen there: {why}; give another address") from None
        self._sock.setblocking(False)
        self._acceptor = Acceptor(self._sock, self._accepted)
        self._acceptor.set_on(True)
        self.endpoint = advertise or f"{host}:{self._sock.getsockname()[1]}"

    async def close(self) -> None:
        if self._acceptor is not None and self._sock is not None:
            self._acceptor.set_on(False)
            self._sock.close()
        await self._handshakes.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._view.release()
        self._memory.close()

    def _accepted(self, sock: socket.socket, _address: object) -> None:
        if len(self._tasks) + len(self._handshakes) >= self._limits.connections_max:
            sock.close()
            self.turned_away += 1
        else:
            self._handshakes.start(self._shake_hands(sock))

    async def _shake_hands(self, sock: socket.socket) -> None:
        try:
            await serve_stream(sock, self._tls, self._serve)
        except OSError:  # the peer has closed it, or has no valid certificate
            sock.close()
            self.refused_handshakes += self._tls is not None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # it runs in one
        self._tasks.add(task)
        writer.transport.set_write_buffer_limits(high=0)  # so that `drain` waits until the kernel has all bytes
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client disconnected, is silent or does not read: it reconnects when it needs to
        except asyncio.CancelledError:
            pass  # the host is closing
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; False if the stream cannot continue."""
        async with asyncio.timeout(_IDLE_S):
            head = await reader.readexactly(REQUEST.size)
        magic, operation, version, capability_bytes, length, address, checksum, number = REQUEST.unpack(head)
        known = magic == PLAIN_MAGIC or (magic == MAGIC and version == VERSION)
        good = known and length <= pool_transfer_bytes_max and operation in (Operation.WRITE, Operation.READ)
        if magic == PLAIN_MAGIC:
            capability_bytes = 0
        async with asyncio.timeout(self._limits.transfer_timeout_ms / 1_000):
            if not good or capability_bytes > CAPABILITY_BYTES_MAX:
                writer.write(ANSWER.pack(PLAIN_MAGIC if magic == PLAIN_MAGIC else MAGIC, Status.BAD_REQUEST, 0, 0))
                await writer.drain()
                return False
            capability = await reader.readexactly(capability_bytes)
            offset = address - self.base
            if offset < 0 or offset + length > self.size:
                token: int | Status = Status.OUT_OF_BOUNDS
            else:
                token = self.admission.judge(Operation(operation), address, length, number, capability)
            if operation == Operation.WRITE:
                status = await self._write(reader, offset, length, checksum, token)
                self._writes[status] += 1
                self._written_bytes += length if status == Status.OK else 0
            else:
                status = await self._read(writer, magic, offset, length, token)
            if status != Status.OK:
                self.admission.refuse(Operation(operation), status)
            if operation == Operation.WRITE or status != Status.OK:
                writer.write(ANSWER.pack(magic, status, 0, 0))
            await writer.drain()
        return True

    async def _write(
        self, reader: asyncio.StreamReader, offset: int, length: int, checksum: int, token: int | Status
    ) -> Status:
        """Receive all bytes, then write all of them or none: an interrupted transfer changes nothing."""
        admission = self.admission
        if isinstance(token, Status) or not await admission.may_write(offset, length, token):
            await _discard(reader, length)
            return token if isinstance(token, Status) else Status.TOO_LATE
        async with self._budget.take(length):
            data, found = bytearray(), 0
            while len(data) < length:
                piece = await reader.readexactly(min(_PIECE_BYTES, length - len(data)))
                found = crc32(piece, found)
                data += piece
            if found != checksum:
                return Status.BAD_CHECKSUM
            if not await admission.may_write(offset, length, token):  # a later owner was faster
                return Status.TOO_LATE
            admission.fence.note(offset, length, token)
            self._view[offset : offset + length] = data
        return Status.OK

    async def _read(
        self, writer: asyncio.StreamWriter, magic: int, offset: int, length: int, token: int | Status
    ) -> Status:
        """Send a consistent copy, with its checksum; nothing is sent if it is refused."""
        if isinstance(token, Status):
            return token
        async with self._budget.take(length):
            if not self.admission.may_read(offset, length, token):
                return Status.TOO_LATE
            data, checksum = bytes(self._view[offset : offset + length]), 0
            for at in range(0, length, _CHECKED_BYTES):
                checksum = crc32(memoryview(data)[at : at + _CHECKED_BYTES], checksum)
                if length > _CHECKED_BYTES:
                    await asyncio.sleep(0)  # let other connections run
            self.read_bytes += length
            writer.write(ANSWER.pack(magic, Status.OK, length, checksum))
            writer.write(data)
            await writer.drain()
        return Status.OK


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


async def _discard(reader: asyncio.StreamReader, length: int) -> None:
    while length:
        length -= len(await reader.readexactly(min(_PIECE_BYTES, length)))
