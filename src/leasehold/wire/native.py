"""The master's functions of our own: what Mooncake's cannot carry.

A put_start that is repeated after a lost answer must get the same space again, or its caller would take "exists
already" for success with no bytes written (schedule 20): so ours carries a request id. It also says whether the
caller speaks the protocol of our own storage hosts.
"""

from __future__ import annotations

from msgspec import Struct

from leasehold.wire.messages import BufferDescriptor, ReplicaDescriptor, ReplicateConfig
from leasehold.wire.rpc import method

__all__ = ["GET", "PUT_START", "UPSERT_START", "BufferDescriptor", "Found", "Get", "Located", "Start", "Started"]


class Start(Struct, frozen=True):
    """Start puts (or upserts): one object for each key. `request` is new for every call and kept over its repeats."""

    client_id: bytes
    tenant: bytes
    keys: list[bytes]
    sizes: list[int]
    config: ReplicateConfig
    request: int
    native: bool


class Located(Struct, frozen=True):
    """Code 0 and where the object is, or an error code."""

    code: int
    replicas: list[ReplicaDescriptor] = []
    size: int = 0
    checksum: int | None = None


class Started(Struct, frozen=True):
    objects: list[Located]


class Get(Struct, frozen=True):
    """Locate objects and lease them. All replicas are told, whatever protocol they speak."""

    tenant: bytes
    keys: list[bytes]


class Found(Struct, frozen=True):
    objects: list[Located]
    lease_ttl_ms: int


PUT_START = method("leasehold::master::PutStart", Start, Started)
UPSERT_START = method("leasehold::master::UpsertStart", Start, Started)
GET = method("leasehold::master::Get", Get, Found)
