"""The table of the HTTP metadata server, in the coordination store: it survives whatever the index survives.

Every node serves it. Reads and writes go to the store, so a reader at one node sees what a client wrote at another.
Each node also follows the table with a watch, for its bounds and for the cleanup: the sizes of the values, not the
values.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final, NamedTuple

import structlog

from leasehold.base.errors import InvalidArgument, LeaseholdError, Refused
from leasehold.base.limits import (
    KIB,
    metadata_key_bytes_max,
    metadata_keys_max,
    metadata_value_bytes_max,
    metadata_values_bytes_max,
    store_request_bytes_max,
)
from leasehold.coord.api import Coord
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    EventType,
    KeyValue,
    Put,
    prefix_end,
)
from leasehold.runtime.outage_log import OutageLog

log = structlog.get_logger("leasehold.metadata")

_PLAIN: Final = b"="
_COMPRESSED: Final = b"z"
_COMPRESS_FROM_BYTES: Final = 64 * KIB  # descriptors with thousands of buffers are JSON, and shrink to a fifth
_STORED_BYTES_MAX: Final = store_request_bytes_max - 16 * KIB  # the rest of the request needs room too
_PAGE_KEYS: Final = 100
_RETRY_S: Final = 1.0


class TableFull(Refused):
    """The table has no room for a value."""


class Stored(NamedTuple):
    """A value, and the revision of the store that wrote it."""

    value: bytes
    revision: int


class MetadataTable:
    """`follow` it while it is used. `sizes` has the size of each value, as the watch has shown them so far."""

    def __init__(self, coord: Coord, prefix: bytes) -> None:
        self._coord = coord
        self._prefix = prefix
        self._end = prefix_end(prefix)
        self._bytes = 0
        self.sizes: dict[str, int] = {}

    async def find(self, key: str) -> Stored | None:
        """The value of a key."""
        found = await self._coord.get_one(self._key(key))
        return Stored(_unpacked(found.value), found.mod_revision) if found is not None else None

    async def put(self, key: str, value: bytes) -> None:
        """Write a value."""
        await self._coord.put(self._key(key), self._packed(key, value))

    async def replace(self, key: str, value: bytes, revision: int) -> bool:
        """Write a value unless the key has changed since `revision` (0: there was none). Returns whether it did."""
        raw = self._key(key)
        result = await self._coord.txn([_unchanged(raw, revision)], [Put(raw, self._packed(key, value))])
        return result.succeeded

    async def delete(self, key: str) -> bool:
        """Delete a key. Returns False if there was none."""
        return bool((await self._coord.delete(self._key(key))).deleted)

    async def delete_unless_changed(self, keys: tuple[str, ...], guard: str, revision: int) -> bool:
        """Delete `keys`, unless the key `guard` has changed since `revision` (0: there was none)."""
        deletes = [DeleteRange(self._key(each)) for each in keys]
        return (await self._coord.txn([_unchanged(self._key(guard), revision)], deletes)).succeeded

    async def follow(self) -> None:
        """Keep `sizes` up to date, until cancelled."""
        outage = OutageLog(log, "cannot read the metadata table", "the metadata table can be read again")
        while True:
            try:
                revision = await self._list()
                outage.succeeded()
                async with self._coord.watch(self._prefix, self._end, start_revision=revision + 1) as stream:
                    async for batch in stream:
                        for event in batch.events:
                            self._count(event.kv, deleted=event.type is EventType.DELETE)
            except LeaseholdError as error:
                outage.failed(error=str(error))
            await asyncio.sleep(_RETRY_S)

    async def _list(self) -> int:
        """Read all sizes, some keys at a time, at one revision. Returns it."""
        first, revision = self._prefix, 0
        sizes: dict[str, int] = {}
        while True:
            page = await self._coord.get(first, self._end, limit=_PAGE_KEYS, revision=revision)
            revision = revision or page.header.revision
            sizes.update({self._name(each.key): len(each.value) for each in page.kvs})
            if not page.more:
                break
            first = page.kvs[-1].key + b"\0"
        self.sizes, self._bytes = sizes, sum(sizes.values())
        return revision

    def _name(self, raw: bytes) -> str:
        return raw.removeprefix(self._prefix).decode(errors="surrogateescape")

    def _count(self, kv: KeyValue, *, deleted: bool) -> None:
        key = self._name(kv.key)
        self._bytes -= self.sizes.pop(key, 0)
        if not deleted:
            self.sizes[key] = len(kv.value)
            self._bytes += len(kv.value)

    def _key(self, key: str) -> bytes:
        raw = key.encode(errors="surrogateescape")
        if len(raw) > metadata_key_bytes_max:
            raise InvalidArgument(f"a key has at most {metadata_key_bytes_max} bytes, this one has {len(raw)}")
        return self._prefix + raw

    def _packed(self, key: str, value: bytes) -> bytes:
        """The bytes to store, if there is room for them."""
        packed = _PLAIN + value if len(value) < _COMPRESS_FROM_BYTES else _COMPRESSED + zlib.compress(value, 1)
        if len(packed) > _STORED_BYTES_MAX:
            raise TableFull(f"a value has at most {_STORED_BYTES_MAX} bytes, compressed; this one has {len(packed)}")
        if key not in self.sizes and len(self.sizes) >= metadata_keys_max:
            raise TableFull(f"the table is full ({metadata_keys_max} keys): delete some")
        if self._bytes - self.sizes.get(key, 0) + len(packed) > metadata_values_bytes_max:
            raise TableFull(f"the table is full ({metadata_values_bytes_max} bytes): delete some")
        return packed


def _unpacked(raw: bytes) -> bytes:
    if not raw.startswith(_COMPRESSED):
        return raw[1:]
    expander = zlib.decompressobj()
    return expander.decompress(raw[1:], metadata_value_bytes_max)


def _unchanged(key: bytes, revision: int) -> Compare:
    return Compare(key, CompareTarget.MOD, CompareResult.EQUAL, revision)
