"""What a store must remember: each change as a record of what was *decided*, enough to do it again elsewhere.

Records are written in order and applied in order. A store's whole state can be told in the same records
(`Store.dump`), so a snapshot is nothing but a short log.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from leasehold.mvcc.model import KeyValue

# (key, value, create revision, mod revision, version, lease); None where a version was compacted away
Version: TypeAlias = tuple[bytes, bytes, int, int, int, int] | None


class Committed(Struct, frozen=True, array_like=True, tag=1):
    """A revision and the versions that it made, in order; version 0 is a deletion."""

    revision: int
    versions: tuple[Version, ...]


class LeaseGranted(Struct, frozen=True, array_like=True, tag=2):
    id: int
    ttl_s: int
    expiry_ms: int


class LeaseRenewed(Struct, frozen=True, array_like=True, tag=3):
    id: int
    expiry_ms: int


class LeaseRevoked(Struct, frozen=True, array_like=True, tag=4):
    """The lease is gone; the end of its keys is a `Committed` of its own, before this."""

    id: int


class CompactedTo(Struct, frozen=True, array_like=True, tag=5):
    revision: int


class Clocked(Struct, frozen=True, array_like=True, tag=6):
    """The store's time. After a restart it goes on from the last one, so that a term is never cut short."""

    now_ms: int


Record: TypeAlias = Committed | LeaseGranted | LeaseRenewed | LeaseRevoked | CompactedTo | Clocked


def version_of(kv: KeyValue | None) -> Version:
    if kv is None:
        return None
    return kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease


def committed(revision: int, places: tuple[KeyValue | None, ...]) -> Committed:
    return Committed(revision, tuple(map(version_of, places)))
