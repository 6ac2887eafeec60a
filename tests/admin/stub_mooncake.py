"""A standby behind Mooncake's routes, for tests of the admin port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from leasehold.admin.mooncake_state import (
    DrainJobInfo,
    FoundKey,
    MooncakeRefused,
    Numbers,
    RuntimeState,
    SegmentInfo,
    TenantQuotaInfo,
)


class StubMooncake:
    """A standby behind Mooncake's routes."""

    def runtime_state(self) -> RuntimeState:
        return RuntimeState("standby", "standby", False)

    def numbers(self) -> Numbers:
        return Numbers({}, (), (0,) * 8, 0)

    def kv_events(self) -> dict[str, int | bool]:
        return {"enabled": False}

    async def find_keys(self, keys: Sequence[bytes]) -> list[FoundKey]:
        raise MooncakeRefused(503, -1011, "service plane is not active")

    async def all_keys(self) -> AsyncIterator[bytes]:
        raise MooncakeRefused(503, -1011, "service plane is not active")
        yield b""

    async def segments(self) -> list[SegmentInfo]:
        raise MooncakeRefused(503, -1011, "service plane is not active")

    async def quotas(self) -> list[TenantQuotaInfo]:
        raise MooncakeRefused(503, -1011, "service plane is not active")

    async def set_quota(self, tenant: bytes, requested_bytes: int) -> TenantQuotaInfo:
        raise MooncakeRefused(503, -1011, "service plane is not active")

    async def delete_quota(self, tenant: bytes) -> TenantQuotaInfo:
        raise MooncakeRefused(503, -1011, "service plane is not active")

    async def start_drain(self, segments: Sequence[str], targets: Sequence[str], concurrency: int) -> str:
        raise MooncakeRefused(503, -1011, "service plane is not active")

    async def query_drain(self, job: str) -> DrainJobInfo:
        raise MooncakeRefused(503, -1011, "service plane is not active")

    async def cancel_drain(self, job: str) -> None:
        raise MooncakeRefused(503, -1011, "service plane is not active")

    async def remove_all(self, force: bool, tenant: bytes) -> int:
        raise MooncakeRefused(503, -1011, "service plane is not active")
