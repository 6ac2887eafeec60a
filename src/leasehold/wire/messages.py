"""Python types of Mooncake's messages. Ids are 16 bytes, keys and tenants are bytes, names are text.

The tables in `tables/` define the order and the width of the fields for each release.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from leasehold.base.codes import ClientStatus as ClientStatus
from leasehold.base.codes import ReplicaKind as ReplicaKind
from leasehold.base.codes import ReplicaStatus as ReplicaStatus
from leasehold.base.codes import SoftPin as SoftPin
from leasehold.base.codes import TaskKind as TaskKind
from leasehold.base.codes import TaskStatus as TaskStatus

SERVICE_VERSION: Final = "2.0.0"  # the answer to ServiceReady that every release since 0.3.8 expects
DEFAULT_TENANT: Final = b"default"


class Segment(Struct, frozen=True):
    """Memory that a storage client lends."""

    id: bytes
    name: str
    base: int
    size: int
    te_endpoint: str
    protocol: str
    host_id: str = ""


class NofSegment(Struct, frozen=True):
    """Memory over fabrics; this master does not offer it."""

    id: bytes
    name: str
    base: int
    size: int
    te_endpoint: str


class BufferDescriptor(Struct, frozen=True):
    """Location of bytes: an absolute address at an endpoint."""

    size: int
    address: int
    protocol: str
    transport_endpoint: str


class MemoryReplica(Struct, frozen=True):
    buffer: BufferDescriptor


class NofReplica(Struct, frozen=True):
    buffer: BufferDescriptor


class DiskReplica(Struct, frozen=True):
    path: str
    size: int


class LocalDiskReplica(Struct, frozen=True):
    client_id: bytes
    size: int
    endpoint: str


class DfsReplica(Struct, frozen=True):
    path: str
    offset: int
    size: int
    aligned: int
    shard: int


Place = MemoryReplica | NofReplica | DiskReplica | LocalDiskReplica | DfsReplica


class ReplicaDescriptor(Struct, frozen=True):
    id: int
    place: Place
    status: int


class ReplicateConfig(Struct, frozen=True):
    """Parameters of a put."""

    replica_num: int = 1
    nof_replica_num: int = 0
    dfs_replica_num: int = 0
    soft_pin_action: int = SoftPin.PRESERVE
    soft_pin_ttl_ms: int | None = None
    with_hard_pin: bool = False
    preferred_segments: list[str] = []
    preferred_segment: str = ""
    preferred_nof_segments: list[str] = []
    prefer_same_node: bool = False
    data_type: int = 0
    host_id: str = ""
    group_ids: list[bytes] | None = None


class ReplicateConfig0312(Struct, frozen=True):
    """The same before 0.3.13, when a soft pin was a boolean."""

    replica_num: int = 1
    nof_replica_num: int = 0
    with_soft_pin: bool = False
    with_hard_pin: bool = False
    preferred_segments: list[str] = []
    preferred_segment: str = ""
    preferred_nof_segments: list[str] = []
    prefer_same_node: bool = False
    data_type: int = 0
    host_id: str = ""
    group_ids: list[bytes] | None = None


class ObjectMeta(Struct, frozen=True):
    key: bytes
    checksum: int | None = None


class GetReplicaListResponse(Struct, frozen=True):
    replicas: list[ReplicaDescriptor]
    lease_ttl_ms: int
    checksum: int | None = None


class PingResponse(Struct, frozen=True):
    view_version: int
    client_status: int


class StorageConfig(Struct, frozen=True):
    fsdir: str
    disk_eviction: bool
    quota: int


class TaskAssignment(Struct, frozen=True):
    id: bytes
    type: int
    payload: str
    created_ms: int
    max_retries: int


class TaskReport(Struct, frozen=True):
    """The result of a task, reported by its executor."""

    id: bytes
    status: int
    message: str


class TaskView(Struct, frozen=True):
    """A task as QueryTask shows it."""

    id: bytes
    type: int
    status: int
    created_ms: int
    updated_ms: int
    client_id: bytes
    message: str


class CopyPlan(Struct, frozen=True):
    source: ReplicaDescriptor
    targets: list[ReplicaDescriptor]


class MovePlan(Struct, frozen=True):
    source: ReplicaDescriptor
    target: ReplicaDescriptor | None


class PromotionPlan(Struct, frozen=True):
    target: ReplicaDescriptor


class OffloadItem(Struct, frozen=True):
    tenant: bytes
    key: bytes
    size: int


class OffloadedMeta(Struct, frozen=True):
    bucket_id: int
    offset: int
    key_size: int
    data_size: int
    endpoint: str
