"""Transfer bytes to and from storage hosts: a few connections to each, one request at a time per connection."""

from __future__ import annotations

import asyncio
from zlib import crc32

from leasehold.base.errors import InvalidArgument
from leasehold.base.limits import pool_transfer_bytes_max
from leasehold.pool.errors import TransferFailed
from leasehold.pool.frame import ANSWER, MAGIC, PLAIN_MAGIC, Operation, Status, pack_request
from leasehold.runtime.tls import Tls
from leasehold.wire.finder import parse_address
from leasehold.wire.messages import BufferDescriptor

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Transfer:
    """All connections of one client. `timeout_ms` is for one transfer, connecting included."""

    def __init__(self, *, connections_max: int = 4, timeout_ms: int = 10_000, tls: Tls | None = None) -> None:
        self._tls = tls
        self._timeout_s = timeout_ms / 1_000
        self._connections_max = connections_max
        self._idle: dict[str, list[_Stream]] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._closed = False

    async def write(self, place: BufferDescriptor, data: bytes, number: int, capability: bytes = b"") -> None:
        """Write bytes to the space that the master allocated under `number`. `TransferFailed`: all written, or none.

        `capability` is the master's permission, which a host with a cluster secret requires.

        When this returns or raises, even by a timeout or a cancellation, no byte is in flight any more: the space can
        safely be released.
        """
        head = pack_request(Operation.WRITE, len(data), place.address, crc32(data), number, capability)
        await self._request(place, head, data)

    async def read(self, place: BufferDescriptor, capability: bytes = b"") -> bytes:
        """Read all bytes of a replica, checked against the host's checksum."""
        head = pack_request(Operation.READ, place.size, place.address, capability=capability)
        data = await self._request(place, head, b"")
        if len(data) != place.size:
            raise TransferFailed(f"{place.transport_endpoint} sent {len(data)} bytes instead of {place.size}")
        return data

    def close(self) -> None:
        self._closed = True
        for streams in self._idle.values():
            for _, writer in streams:
                writer.close()
        self._idle.clear()

    async def _request(self, place: BufferDescriptor, head: bytes, data: bytes) -> bytes:
        check_size(place.size)
        endpoint = place.transport_endpoint
        slot = self._slots.setdefault(endpoint, asyncio.Semaphore(self._connections_max))
        try:
            async with asyncio.timeout(self._timeout_s), slot:
                return await self._on_a_connection(endpoint, head, data)
        except TimeoutError:
            raise TransferFailed(f"{endpoint} did not answer within {self._timeout_s:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise TransferFailed(f"{endpoint}: {error or type(error).__name__}") from None

    async def _on_a_connection(self, endpoint: str, head: bytes, data: bytes) -> bytes:
        idle = self._idle.setdefault(endpoint, [])
        fresh = not idle
        reader, writer = idle.pop() if idle else await self._open(endpoint)
        try:
            answer = await self._exchange(reader, writer, head, data)
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
            if fresh:
                raise
            # An idle connection may be closed already. Both operations may be repeated: same bytes, same place.
            self._drop_idle(endpoint)
            return await self._on_a_connection(endpoint, head, data)
        except BaseException:
            # In the middle of an exchange the connection is unusable. Not `close`, which keeps sending: the bytes could
            # arrive after their space was reallocated.
            writer.transport.abort()
            raise
        if self._closed:
            writer.close()
        else:
            self._idle.setdefault(endpoint, []).append((reader, writer))
        return _checked(endpoint, *answer)

    async def _open(self, endpoint: str) -> _Stream:
        host, port = parse_address(endpoint)
        if self._tls is None:
            return await asyncio.open_connection(host, port, limit=1 << 20)
        name = self._tls.server_name(host)
        return await asyncio.open_connection(host, port, limit=1 << 20, ssl=self._tls.client(), server_hostname=name)

    def _drop_idle(self, endpoint: str) -> None:
        for _, writer in self._idle.pop(endpoint, []):
            writer.close()

    @staticmethod
    async def _exchange(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, data: bytes
    ) -> tuple[int, int, bytes]:
        writer.write(head)
        if data:
            writer.write(data)
        await writer.drain()
        magic, status, length, checksum = ANSWER.unpack(await reader.readexactly(ANSWER.size))
        if magic not in (MAGIC, PLAIN_MAGIC) or length > pool_transfer_bytes_max:
            raise ConnectionError("the server there is not a storage host")
        return status, checksum, await reader.readexactly(length)


def check_size(size: int) -> None:
    """Raise if an object is too large to be moved."""
    if size > pool_transfer_bytes_max:
        raise InvalidArgument(f"{size} bytes exceed the limit of one transfer ({pool_transfer_bytes_max})")


def _checked(endpoint: str, status: int, checksum: int, data: bytes) -> bytes:
    if status != Status.OK:
        reason = Status(status).name.lower().replace("_", " ") if status in tuple(Status) else f"status {status}"
        raise TransferFailed(f"{endpoint} refused: {reason}")
    if crc32(data) != checksum:
        raise TransferFailed(f"{endpoint}: the bytes were damaged in transit")
    return data
