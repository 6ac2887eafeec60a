"""The interface of a node for Mooncake's own admin routes, with the names of its JSON fields."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from msgspec import Struct

from leasehold.base.errors import Refused


class MooncakeRefused(Refused):
    """A request that the C++ master refuses: the HTTP status, its error code, and its message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RuntimeState(Struct, frozen=True):
    """The role of a node, in the words of the C++ master."""

    role: str  # leader | standby
    ha_state: str  # serving | standby | catching_up | recovering | leader_warmup
    service_ready: bool
    leader_address: str | None = None
    view_version: int | None = None


class Buffer(Struct, frozen=True):
    """One replica in memory. The C++ fields end with an underscore."""

    size_: int
    buffer_address_: int
    protocol_: str
    transport_endpoint_: str


class FoundKey(Struct, frozen=True):
    """An object, or why it cannot be read."""

    buffers: tuple[Buffer, ...] = ()
    code: int = 0
    error: str = ""


class SegmentInfo(Struct, frozen=True):
    """A mounted segment. Ids are two numbers, as the C++ master prints a UUID."""

    segment_name: str
    segment_id: str
    client_id: str
    base: int
    size_bytes: int
    te_endpoint: str
    protocol: str
    status: int
    status_name: str
    used_bytes: int


class TenantQuotaInfo(Struct, frozen=True):
    """The quota of a tenant. Admission is closed for a tenant without a policy."""

    tenant_id: str
    requested_quota_bytes: int
    effective_quota_bytes: int
    charged_bytes: int
    admission_closed: bool
    over_quota: bool
    has_explicit_policy: bool


class DrainJobInfo(Struct, frozen=True):
    """A drain job and its progress; a unit is one move of an object."""

    success: bool
    job_id: str
    type: int
    type_name: str
    status: int
    status_name: str
    created_at_ms_epoch: int
    last_updated_at_ms_epoch: int
    segments: tuple[str, ...]
    succeeded_units: int
    failed_units: int
    blocked_units: int
    active_units: int
    migrated_bytes: int
    message: str
    error_code: int = 0
    error_message: str = ""


class Numbers(Struct, frozen=True):
    """The metrics of a node: plain ones by name, and those with labels or buckets."""

    plain: dict[str, int]
    segments: tuple[tuple[str, int, int], ...]  # name, allocated bytes, capacity
    value_sizes: tuple[int, ...]  # started puts by size: not cumulated, the last without bound
    value_size_sum: int


class MooncakeFace(Protocol):
    """A running node. Methods that need the primary raise `MooncakeRefused` elsewhere."""

    def runtime_state(self) -> RuntimeState: ...

    def numbers(self) -> Numbers: ...

    def kv_events(self) -> dict[str, int | bool]:
        """Counters of the event stream."""
        ...

    async def find_keys(self, keys: Sequence[bytes]) -> list[FoundKey]:
        """Look up keys of the default tenant, without a lease."""
        ...

    def all_keys(self) -> AsyncIterator[bytes]:
        """The names of all readable objects, one on a line, in parts."""
        ...

    async def segments(self) -> list[SegmentInfo]:
        """All mounted segments, in the order of their mounts."""
        ...

    async def quotas(self) -> list[TenantQuotaInfo]:
        """The tenants that have a quota or objects."""
        ...

    async def set_quota(self, tenant: bytes, requested_bytes: int) -> TenantQuotaInfo: ...

    async def delete_quota(self, tenant: bytes) -> TenantQuotaInfo: ...

    async def start_drain(self, segments: Sequence[str], targets: Sequence[str], concurrency: int) -> str:
        """Start to empty segments. Returns the id of the job."""
        ...

    async def query_drain(self, job: str) -> DrainJobInfo: ...

    async def cancel_drain(self, job: str) -> None: ...

    async def remove_all(self, force: bool, tenant: bytes) -> int:
        """Remove the objects of a tenant (empty: of all tenants). Returns their number."""
        ...
