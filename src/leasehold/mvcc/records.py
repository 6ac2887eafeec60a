"""The log records of a store. Each holds what was *decided*, so that applying it again gives the same state.

Records are written in order and applied in order. The whole state of a store can be expressed in the same records
(`Store.dump`), so a snapshot is a short log.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from leasehold.mvcc.model import KeyValue

# (key, value, create revision, mod revision, version, lease); None if the version was compacted
Version: TypeAlias = tuple[bytes, bytes, int, int, int, int] | None


class Committed(Struct, frozen=True, array_like=True, tag=1):
    """A revision and its versions, in order. Version 0 is a deletion."""

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
    """The lease was deleted. An earlier `Committed` deletes its keys."""

    id: int


class CompactedTo(Struct, frozen=True, array_like=True, tag=5):
    revision: int


class Clocked(Struct, frozen=True, array_like=True, tag=6):
    """The store's time. After a restart it continues from the last one, so that no lease expires early."""

    now_ms: int


class AlarmSwitched(Struct, frozen=True, array_like=True, tag=7):
    """A client has activated or deactivated an alarm of a member."""

    member_id: int
    kind: int
    active: bool


Record: TypeAlias = Committed | LeaseGranted | LeaseRenewed | LeaseRevoked | CompactedTo | Clocked | AlarmSwitched


def version_of(kv: KeyValue | None) -> Version:
    if kv is None:
        return None
    return kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease


def committed(revision: int, places: tuple[KeyValue | None, ...]) -> Committed:
    return Committed(revision, tuple(map(version_of, places)))
