"""A running node behind Mooncake's admin routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from leasehold.admin.mooncake_state import (
    Buffer,
    DrainJobInfo,
    FoundKey,
    MooncakeRefused,
    Numbers,
    RuntimeState,
    SegmentInfo,
    TenantQuotaInfo,
)
from leasehold.base.codes import Code
from leasehold.ha.effects import Role
from leasehold.index.draining import DrainProgress
from leasehold.index.drains import DrainStatus
from leasehold.index.index import Index
from leasehold.index.model import Object, Segment
from leasehold.index.replies import Answered
from leasehold.index.tenants import TenantQuota
from leasehold.node.service import commands
from leasehold.node.service.descriptors import readable
from leasehold.node.worker.mooncake_numbers import numbers_of, used_bytes
from leasehold.node.worker.run import RunningNode
from leasehold.runtime.clock import wall_us
from leasehold.wire.messages import DEFAULT_TENANT

UNAVAILABLE: Final = -1011
INTERNAL_ERROR: Final = -1
DURABLE_POLL_S: Final = 0.002
DURABLE_TIMEOUT_S: Final = 5.0
KEYS_STEP_TABLES: Final = 256  # of 16,384 for each tenant: a million objects take 64 short steps
_OK, _UNMOUNTING = (1, "OK"), (4, "GRACEFULLY_UNMOUNTING")
_STATES: Final = {
    Role.PRIMARY: "serving",
    Role.PROMOTING: "leader_warmup",
    Role.CATCHING_UP: "catching_up",
    Role.STANDBY: "standby",
    Role.STEPPING_DOWN: "standby",
}
_NO_EVENTS: Final = {
    "enabled": False, "published_batches": 0, "published_events": 0, "dropped_events": 0, "skipped_unparsed_keys": 0,
}  # fmt: skip
_DRAIN_ERRORS: Final = {
    Code.BAD_PARAMS: (400, -600, "INVALID_PARAMS"),
    Code.SEGMENT_NOT_FOUND: (404, -101, "SEGMENT_NOT_FOUND"),
    Code.JOB_NOT_FOUND: (404, -1402, "JOB_NOT_FOUND"),
    Code.NOT_NOW: (409, -1012, "UNAVAILABLE_IN_CURRENT_STATUS"),
    Code.NO_SPACE: (500, INTERNAL_ERROR, "the journal is full: nothing can be written"),
}
_QUOTA_ERRORS: Final = {
    Code.NOT_FOUND: (404, -704, "OBJECT_NOT_FOUND"),
    Code.TENANT_NOT_EMPTY: (409, -1702, "TENANT_NOT_EMPTY"),
    Code.BAD_PARAMS: (400, -600, "INVALID_PARAMS"),
    Code.NOT_NOW: (409, -1012, "the feature level of the cluster is too low: type leasehold feature-level"),
    Code.NO_SPACE: (500, INTERNAL_ERROR, "the journal is full: nothing can be written"),
}
_ERRORS: Final = {Code.NOT_FOUND: "OBJECT_NOT_FOUND", Code.NOT_READY: "REPLICA_IS_NOT_READY"}


class MooncakeView:
    """Implements `admin.mooncake_state.MooncakeFace`."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    def runtime_state(self) -> RuntimeState:
        machine = self._node.machine
        serves = machine.may_serve(self._node.clock.now_ms())
        leader, state = machine.ctx.view.leader, _STATES.get(machine.role, "recovering")
        if leader is not None and not leader.trusted:
            leader = None  # another client of the store wrote it: no client may be sent to that address
        return RuntimeState(
            role="leader" if machine.role in (Role.PRIMARY, Role.PROMOTING) else "standby",
            ha_state=state,
            service_ready=serves,
            leader_address=leader.value.rpc if leader is not None else None,
            view_version=leader.epoch if leader is not None else None,
        )

    def numbers(self) -> Numbers:
        return numbers_of(self._node)

    def kv_events(self) -> dict[str, int | bool]:
        events = self._node.events
        return dict(_NO_EVENTS) if events is None else events.status()

    # --- only on the primary ---

    async def find_keys(self, keys: Sequence[bytes]) -> list[FoundKey]:
        self._require_leadership()
        reply = self._node.machine.serving.execute(commands.find_many, DEFAULT_TENANT, keys)
        found = [_found(each) for each in reply.value]
        await self._durable(reply.after)
        return found

    async def all_keys(self) -> AsyncIterator[bytes]:
        self._require_leadership()
        catalog = self._node.machine.index.catalog
        for tenant in list(catalog.tables):
            first = 0
            while (tables := catalog.tables.get(tenant)) is not None and first < len(tables):
                step = tables[first : first + KEYS_STEP_TABLES]
                lines = [each.key + b"\n" for table in step if table for each in table.values() if each.visible]
                first += KEYS_STEP_TABLES
                await self._durable(self._node.machine.index.log.last_n)
                yield b"".join(lines)
                await asyncio.sleep(0)
        yield b""

    async def segments(self) -> list[SegmentInfo]:
        self._require_leadership()
        index = self._node.machine.index
        found = [_segment(index, each) for each in index.space.segments.values()]
        await self._durable(index.log.last_n)
        return found

    async def quotas(self) -> list[TenantQuotaInfo]:
        self._require_quotas()
        reply = self._node.machine.serving.execute(commands.quotas)
        await self._durable(reply.after)
        return [_quota(each) for each in reply.value]

    async def set_quota(self, tenant: bytes, requested_bytes: int) -> TenantQuotaInfo:
        self._require_quotas()
        serving = self._node.machine.serving
        return await self._quota_answer(serving.execute(commands.set_quota, tenant, requested_bytes))

    async def delete_quota(self, tenant: bytes) -> TenantQuotaInfo:
        self._require_quotas()
        return await self._quota_answer(self._node.machine.serving.execute(commands.delete_quota, tenant))

    async def _quota_answer(self, reply: Answered[TenantQuota]) -> TenantQuotaInfo:
        await self._durable(reply.after)
        if reply.code != Code.OK:
            raise MooncakeRefused(*_QUOTA_ERRORS.get(reply.code, (500, int(reply.code), reply.code.name)))
        return _quota(reply.value)

    def _require_quotas(self) -> None:
        self._require_leadership()
        if not self._node.config.index.tenant_quotas:
            raise MooncakeRefused(409, UNAVAILABLE, "UNAVAILABLE_IN_CURRENT_MODE")

    async def start_drain(self, segments: Sequence[str], targets: Sequence[str], concurrency: int) -> str:
        self._require_leadership()
        serving = self._node.machine.serving
        reply = serving.execute(commands.start_drain, segments, targets, concurrency, wall_us() // 1000)
        await self._durable(reply.after)
        _require_drain(reply.code)
        return _two_numbers(reply.value)

    async def query_drain(self, job: str) -> DrainJobInfo:
        self._require_leadership()
        reply = self._node.machine.serving.execute(commands.query_drain, _job_id(job))
        await self._durable(reply.after)
        if reply.value is None:
            raise MooncakeRefused(*_DRAIN_ERRORS[Code.JOB_NOT_FOUND])
        return _drain_job(job, reply.value)

    async def cancel_drain(self, job: str) -> None:
        self._require_leadership()
        reply = self._node.machine.serving.execute(commands.cancel_drain, _job_id(job))
        await self._durable(reply.after)
        _require_drain(reply.code)

    async def remove_all(self, force: bool, tenant: bytes) -> int:
        self._require_leadership()
        serving = self._node.machine.serving
        index = serving.index
        if index.log.refuses_records():
            raise MooncakeRefused(500, INTERNAL_ERROR, "the journal is full: nothing can be written")
        removed = 0
        for each in [tenant] if tenant else list(index.catalog.tables):
            removal, done = index.removes.start_range(each, b"", force), False
            while not done:
                self._require_leadership()
                reply = serving.execute(commands.range_removal_step, removal)
                done = reply.value
                await asyncio.sleep(0)
            await self._durable(removal.after)
            removed += removal.count
        return removed

    def _require_leadership(self) -> None:
        if not self._node.machine.serving.may_serve(self._node.clock.now_ms()):
            raise MooncakeRefused(503, UNAVAILABLE, "service plane is not active")

    async def _durable(self, n: int) -> None:
        """Wait until record `n` is durable: an answer must not show what a failover would undo (P1)."""
        try:
            async with asyncio.timeout(DURABLE_TIMEOUT_S):
                while self._node.machine.outbox.acked_n < n:
                    self._require_leadership()
                    await asyncio.sleep(DURABLE_POLL_S)
        except TimeoutError:
            raise MooncakeRefused(503, UNAVAILABLE, "the journal did not become durable in time") from None
        self._require_leadership()


def _require_drain(code: Code) -> None:
    if code != Code.OK:
        raise MooncakeRefused(*_DRAIN_ERRORS.get(code, (500, int(code), code.name)))


def _job_id(text: str) -> bytes:
    """The id of a job, as the C++ master prints a UUID: two numbers."""
    first, dash, second = text.partition("-")
    if not (dash and first.isdecimal() and second.isdecimal() and int(first) < 1 << 64 and int(second) < 1 << 64):
        raise MooncakeRefused(400, -600, "Missing or invalid job_id")
    return int(first).to_bytes(8, "little") + int(second).to_bytes(8, "little")


def _drain_job(job_id: str, progress: DrainProgress) -> DrainJobInfo:
    job = progress.job
    return DrainJobInfo(
        True, job_id, 0, "DRAIN", job.status, DrainStatus(job.status).name, job.created_ms, job.created_ms,
        job.segments, job.moved, job.failed, progress.blocked, progress.active, job.moved_bytes, job.message,
    )  # fmt: skip


def _quota(quota: TenantQuota) -> TenantQuotaInfo:
    return TenantQuotaInfo(
        quota.tenant.decode(errors="surrogateescape"),
        quota.requested_bytes,
        quota.effective_bytes,
        quota.charged_bytes,
        not quota.has_policy,
        quota.over_quota,
        quota.has_policy,
    )


def _found(found: Object | None) -> FoundKey:
    if found is None or not found.visible:
        code = Code.NOT_FOUND if found is None else Code.NOT_READY
        return FoundKey(code=int(code), error=_ERRORS[code])
    return FoundKey(
        tuple(
            Buffer(found.size, each.address, each.segment.spec.protocol, each.segment.spec.endpoint)
            for each in readable(found)
        )
    )


def _drain_status(index: Index, segment: Segment) -> tuple[int, str]:
    if not segment.draining:
        return _OK
    return (3, "DRAINED") if index.drains.is_emptied(segment) else (2, "DRAINING")


def _segment(index: Index, segment: Segment) -> SegmentInfo:
    spec = segment.spec
    status, name = _UNMOUNTING if segment.drain_end else _drain_status(index, segment)
    return SegmentInfo(
        segment_name=spec.name,
        segment_id=_two_numbers(spec.id),
        client_id=_two_numbers(segment.client),
        base=spec.base,
        size_bytes=spec.size,
        te_endpoint=spec.endpoint,
        protocol=spec.protocol,
        status=status,
        status_name=name,
        used_bytes=used_bytes(segment),
    )


def _two_numbers(uuid: bytes) -> str:
    """A UUID as the C++ master prints it."""
    return f"{int.from_bytes(uuid[:8], 'little')}-{int.from_bytes(uuid[8:], 'little')}"
