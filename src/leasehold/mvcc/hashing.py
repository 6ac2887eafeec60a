"""The hash over all versions (`etcdctl endpoint hashkv`), equal to that of a real etcd with the same content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from leasehold.base.varint import varint
from leasehold.mvcc.errors import Compacted, FutureRevision
from leasehold.mvcc.keyspace import KeySpace
from leasehold.mvcc.model import KeyValue

# (revision, place in the revision, version)
Placed = tuple[int, int, KeyValue]


def hashed_versions(keys: KeySpace, revision: int) -> list[Placed]:
    """The versions that count towards the hash at `revision` (0: now)."""
    if 0 < revision < keys.compact_revision:
        raise Compacted(keys.compact_revision)
    if revision > keys.revision:
        raise FutureRevision
    upto = revision or keys.revision
    found: list[Placed] = []
    for past, places in keys.log.items():
        if past > upto:
            break
        for place, kv in enumerate(places):
            # A version up to the compacted revision counts only while it is the current one: a deletion never does.
            if kv is not None and (past > keys.compact_revision or keys.at(kv.key, upto) is kv):
                found.append((past, place, kv))
    return found


def hash_of(versions: Iterable[Placed]) -> int:
    """CRC-32C over revisions and versions in etcd's disk format. Slow (pure Python): not for a hot path."""
    crc = _crc32c(0xFFFFFFFF, b"key")
    for part in _on_disk(versions):
        crc = _crc32c(crc, part)
    return crc ^ 0xFFFFFFFF


def _on_disk(versions: Iterable[Placed]) -> Iterator[bytes]:
    for revision, place, kv in versions:
        key = revision.to_bytes(8, "big") + b"_" + place.to_bytes(8, "big")
        yield key if kv.version else key + b"t"
        yield _message(kv)


def _message(kv: KeyValue) -> bytes:
    """The version as a protobuf message; a tombstone has only its key."""
    parts = [b"\x0a", varint(len(kv.key)), kv.key]
    if kv.version:
        for tag, number in ((b"\x10", kv.create_revision), (b"\x18", kv.mod_revision), (b"\x20", kv.version)):
            parts += (tag, varint(number))
        if kv.value:
            parts += (b"\x2a", varint(len(kv.value)), kv.value)
        if kv.lease:
            parts += (b"\x30", varint(kv.lease & 0xFFFF_FFFF_FFFF_FFFF))
    return b"".join(parts)


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _table()


def _crc32c(crc: int, data: bytes) -> int:
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc
