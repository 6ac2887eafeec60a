"""Leasehold's own functions of the master, for data that Mooncake's functions cannot carry.

A put_start that is repeated after a lost answer must get the same space again. Otherwise its caller would
take "exists already" for success although no bytes were written (schedule 20). So our function carries a request id.
It also carries whether the caller supports the protocol of our own storage hosts.
"""

from __future__ import annotations

from msgspec import Struct

from leasehold.wire.messages import BufferDescriptor, ReplicaDescriptor, ReplicateConfig
from leasehold.wire.rpc import method

__all__ = [
    "GET", "OWNER_PINGS", "PUT_START", "UPSERT_START",
    "AskOwner", "BufferDescriptor", "Found", "Get", "Located", "OwnerAnswer", "Start", "Started",
]  # fmt: skip


class Start(Struct, frozen=True):
    """Start puts (or upserts): one object per key. `request` is new for every call, the same for its repeats."""

    client_id: bytes
    tenant: bytes
    keys: list[bytes]
    sizes: list[int]
    config: ReplicateConfig
    request: int
    native: bool


class Located(Struct, frozen=True):
    """Code 0 and the location of the object, or an error code."""

    code: int
    replicas: list[ReplicaDescriptor] = []
    size: int = 0
    checksum: int | None = None


class Started(Struct, frozen=True):
    objects: list[Located]


class Get(Struct, frozen=True):
    """Locate objects and lease them. All replicas are returned, whatever their protocol."""

    tenant: bytes
    keys: list[bytes]


class Found(Struct, frozen=True):
    objects: list[Located]
    lease_ttl_ms: int


class AskOwner(Struct, frozen=True):
    """From one node to the primary: does the client that lends segments of this name ping?"""

    name: str


class OwnerAnswer(Struct, frozen=True):
    pings: int  # a `Pings` of node/service/metadata_owners.py


PUT_START = method("leasehold::master::PutStart", Start, Started)
UPSERT_START = method("leasehold::master::UpsertStart", Start, Started)
GET = method("leasehold::master::Get", Get, Found)
OWNER_PINGS = method("leasehold::master::OwnerPings", AskOwner, OwnerAnswer)
