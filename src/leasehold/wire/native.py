"""Leasehold's own functions of the master, for data that Mooncake's functions cannot carry.

A put_start that is repeated after a lost answer must get the same space again. Otherwise its caller would
take "exists already" for success although no bytes were written (schedule 20). So our function carries a request id.
It also carries whether the caller supports the protocol of our own storage hosts.

If the master has a cluster secret, the answers of `PUT_START`, `UPSERT_START` and `GET` have an attachment: one
capability for each replica, in order. It starts with the size of one (u16), so that their format may change. Clients
pass them on to storage hosts unread (`pool/capability.py`).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from leasehold.wire.errors import Malformed
from leasehold.wire.messages import BufferDescriptor, ReplicaDescriptor, ReplicateConfig
from leasehold.wire.rpc import method

__all__ = [
    "GET", "HOST_PING", "OWNER_PINGS", "PUT_START", "UPSERT_START",
    "AskOwner", "BufferDescriptor", "Found", "Get", "GrantedReplica", "HostAnswer", "HostPing", "Located",
    "OwnerAnswer", "Start", "Started", "join_capabilities", "split_capabilities",
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


class HostPing(Struct, frozen=True):
    """A storage host's ping, for one segment. `refused` counts what it refused since it started, by reason."""

    client_id: bytes
    segment: bytes
    window: int
    refused: dict[str, int]


class HostAnswer(Struct, frozen=True):
    """Answer to a `HostPing`: as for `Ping`, and what the host needs to judge writes."""

    epoch: int
    client_status: int
    incarnation: int  # of the segment; 0 if it is not mounted
    issued: int  # no higher fencing token has been given out
    signs: bool  # capabilities are given out
    release_ms: int  # the time after which a writer must have given up


class AskOwner(Struct, frozen=True):
    """From one node to the primary: does the client that lends segments of this name ping?"""

    name: str


class OwnerAnswer(Struct, frozen=True):
    pings: int  # a `Pings` of node/service/metadata_owners.py


PUT_START = method("leasehold::master::PutStart", Start, Started)
UPSERT_START = method("leasehold::master::UpsertStart", Start, Started)
GET = method("leasehold::master::Get", Get, Found)
HOST_PING = method("leasehold::master::HostPing", HostPing, HostAnswer)
OWNER_PINGS = method("leasehold::master::OwnerPings", AskOwner, OwnerAnswer)


class GrantedReplica(ReplicaDescriptor, frozen=True):
    """A replica with the capability to access it; empty if the master gives out none."""

    capability: bytes = b""


_SIZE_BYTES = 2


def join_capabilities(capabilities: list[bytes]) -> bytes:
    """The attachment of an answer. All have the same size."""
    size = len(capabilities[0]) if capabilities else 0
    return size.to_bytes(_SIZE_BYTES, "little") + b"".join(capabilities)


def split_capabilities(objects: list[Located], attachment: bytes) -> list[Located]:
    """The objects of an answer, each replica with its capability from the attachment."""
    size = int.from_bytes(attachment[:_SIZE_BYTES], "little")
    count = sum(len(each.replicas) for each in objects)
    if not attachment:
        return objects
    if len(attachment) != _SIZE_BYTES + size * count:
        raise Malformed(f"{len(attachment)} bytes are not {count} capabilities of {size} bytes")
    parts = iter([attachment[at : at + size] for at in range(_SIZE_BYTES, len(attachment), size or 1)])
    return [
        msgspec.structs.replace(
            each, replicas=[GrantedReplica(one.id, one.place, one.status, next(parts)) for one in each.replicas]
        )
        for each in objects
    ]
