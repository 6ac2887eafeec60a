"""The commands that a client can give: `serving.execute(command, ...)` runs one on the index.

Each takes the index, because a node may replace its index when it rebuilds, and returns a typed reply: its kind (an
acknowledgement, space, a view) and the record that the answer waits for. The hot commands are methods of `Serving`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from leasehold.base.codes import Code
from leasehold.index.disk_commands import DiskTask
from leasehold.index.disk_commands import Written as WrittenToDisk
from leasehold.index.draining import DrainProgress
from leasehold.index.index import Index
from leasehold.index.model import Object, PutConfig, Replica, Segment, SegmentSpec, Task
from leasehold.index.puts import ManyStarted, NewObject, Written
from leasehold.index.removes import RangeRemoval
from leasehold.index.replies import Acknowledged, Answered, SpaceHandedOut, View
from leasehold.index.tenants import TenantQuota

StartMany = Callable[[Index, int, bytes, bytes, Iterable[NewObject], int], ManyStarted]

# --- reads ---


def exist_many(
    index: Index, now_ms: int, tenant: bytes, keys: Sequence[bytes], hit: bytes, miss: bytes
) -> View[list[bytes]]:
    """For each key `hit` or `miss`."""
    return index.reads.exist_many(now_ms, tenant, keys, hit, miss)


def get_many(index: Index, now_ms: int, tenant: bytes, keys: Sequence[bytes]) -> View[list[Object | None]]:
    """`get` for each key, with one record for all."""
    return index.reads.get_many(now_ms, tenant, keys)


def find_many(index: Index, now_ms: int, tenant: bytes, keys: Sequence[bytes]) -> View[list[Object | None]]:
    """The objects of these names, readable or not, without a lease."""
    found = [index.catalog.lookup(tenant, key) for key in keys]
    if index.disk.count:
        found = [each or index.disk.read(tenant, key) for key, each in zip(keys, found, strict=True)]
    return View(found, index.log.last_n)


# --- puts ---


def start_upsert(
    index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig
) -> SpaceHandedOut[Object]:
    return index.puts.start_upsert(now_ms, client, tenant, key, size, config)


def start_many(
    index: Index, now_ms: int, client: bytes, tenant: bytes, objects: Iterable[NewObject], request: int = 0
) -> ManyStarted:
    """Start a put of each object; one answer hands out the space of all."""
    return index.puts.start_many(now_ms, client, tenant, objects, request)


def start_many_upserts(
    index: Index, now_ms: int, client: bytes, tenant: bytes, objects: Iterable[NewObject], request: int = 0
) -> ManyStarted:
    """Start an upsert of each object; one answer hands out the space of all."""
    return index.puts.start_many_upserts(now_ms, client, tenant, objects, request)


def end_many(
    index: Index, now_ms: int, client: bytes, tenant: bytes, written: Iterable[Written], kind: int
) -> Answered[list[Code]]:
    """End the put or upsert of each object."""
    return index.puts.end_many(now_ms, client, tenant, written, kind)


def revoke(index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes, kind: int) -> Acknowledged:
    """Give an unfinished put or upsert back."""
    return index.puts.revoke(now_ms, client, tenant, key, kind)


# --- removes ---


class RemoveMany:
    """A `BatchRemove` under way. The index bounds a caller's removes of absent keys: beyond, it answers TRY_AGAIN."""

    def __init__(self, keys: Sequence[bytes], force: bool, tenant: bytes, source: bytes) -> None:
        self._keys, self._force, self._tenant, self._source = keys, force, tenant, source
        self._last_n = 0
        self.codes: list[Code] = []

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, self._keys))

    def step(self, index: Index, now_ms: int) -> View[bool]:
        """True: every key has its code. False: go on when the record of this reply is durable."""
        remove, tenant, force, source, codes = index.removes.remove, self._tenant, self._force, self._source, self.codes
        for key in self._keys[len(codes) :]:
            reply = remove(now_ms, tenant, key, force, source)
            if reply.code == Code.TRY_AGAIN:
                return View(False, reply.after)
            if reply.after > self._last_n:
                self._last_n = reply.after
            codes.append(reply.code)
        return View(True, self._last_n)


def range_removal_step(index: Index, now_ms: int, removal: RangeRemoval) -> View[bool]:
    """One step of `RemoveAll` or `RemoveByRegex`. True when it was the last one."""
    done = removal.step(now_ms)
    if done and removal.of_all_keys:
        index.disks.removed_all()
    return View(done, removal.after)


def clear_replicas(
    index: Index, now_ms: int, client: bytes, tenant: bytes, keys: Sequence[bytes], segment_name: str
) -> Answered[list[bytes]]:
    return index.removes.clear_replicas(now_ms, client, tenant, keys, segment_name)


# --- clients and segments ---


def ping(index: Index, now_ms: int, client: bytes) -> View[int]:
    """The client's status. It shows no record."""
    return View(index.owners.ping(now_ms, client), 0)


def mount(index: Index, now_ms: int, client: bytes, spec: SegmentSpec) -> Acknowledged:
    return index.mounts.mount(now_ms, client, spec)


def remount(index: Index, now_ms: int, client: bytes, specs: Sequence[SegmentSpec]) -> Acknowledged:
    return index.mounts.remount(now_ms, client, specs)


def unmount(index: Index, now_ms: int, client: bytes, segment: bytes) -> Acknowledged:
    return index.mounts.unmount(now_ms, client, segment)


def drain(index: Index, now_ms: int, client: bytes, segment: bytes, grace_ms: int) -> Acknowledged:
    return index.mounts.drain(now_ms, client, segment, grace_ms)


def segment_by_name(index: Index, now_ms: int, name: str) -> View[Segment | None]:
    """The first segment of this name."""
    found = index.space.segments.by_name.get(name)
    return _segment(index, found[0] if found else None)


def segment_by_id(index: Index, now_ms: int, segment: bytes) -> View[Segment | None]:
    return _segment(index, index.space.segments.by_id.get(segment))


def _segment(index: Index, segment: Segment | None) -> View[Segment | None]:
    """A segment that is mounted shows only its mount. One that is absent or draining shows that it is."""
    return View(segment, index.log.last_n if segment is None or segment.drain_end else segment.incarnation)


def client_endpoints(index: Index, now_ms: int, clients: Sequence[bytes]) -> View[dict[bytes, list[str]]]:
    """The endpoints where these clients lend memory."""
    return View({client: index.owners.endpoints_of(client) for client in clients}, index.log.last_n)


# --- copies, moves, tasks ---


def copy_start(
    index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes, source: str, targets: Sequence[str]
) -> SpaceHandedOut[tuple[Replica, list[Replica]]]:
    return index.copies.copy_start(now_ms, client, tenant, key, source, targets)


def copy_end(index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
    return index.copies.copy_end(now_ms, client, tenant, key)


def copy_revoke(index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
    return index.copies.copy_revoke(now_ms, client, tenant, key)


def move_start(
    index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes, source: str, target: str
) -> SpaceHandedOut[tuple[Replica, Replica | None]]:
    return index.copies.move_start(now_ms, client, tenant, key, source, target)


def move_end(index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
    return index.copies.move_end(now_ms, client, tenant, key)


def move_revoke(index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
    return index.copies.move_revoke(now_ms, client, tenant, key)


def create_copy_task(index: Index, now_ms: int, tenant: bytes, key: bytes, targets: Sequence[str]) -> Answered[bytes]:
    return index.tasks.create_copy(now_ms, tenant, key, targets)


def create_move_task(index: Index, now_ms: int, tenant: bytes, key: bytes, source: str, target: str) -> Answered[bytes]:
    return index.tasks.create_move(now_ms, tenant, key, source, target)


def fetch_tasks(index: Index, now_ms: int, client: bytes, limit: int) -> View[list[Task]]:
    """Tasks for this client that were not fetched yet."""
    return index.tasks.fetch(now_ms, client, limit)


def finish_task(index: Index, now_ms: int, client: bytes, task: bytes, status: int, message: str) -> Acknowledged:
    return index.tasks.finish(now_ms, client, task, status, message)


def query_task(index: Index, now_ms: int, task: bytes) -> Answered[Task | None]:
    return index.tasks.query(task)


# --- the disk tier ---


def mount_disk(index: Index, now_ms: int, client: bytes, offloading: bool) -> Acknowledged:
    return index.disks.mount(now_ms, client, offloading)


def unmount_disk(index: Index, now_ms: int, client: bytes) -> Acknowledged:
    return index.disks.unmount(now_ms, client)


def report_disk(index: Index, now_ms: int, client: bytes, capacity_bytes: int) -> Acknowledged:
    """How large a client's disk is."""
    return index.disks.report_capacity(now_ms, client, capacity_bytes)


def poll_remove_all(index: Index, now_ms: int, client: bytes) -> Answered[bool]:
    """Whether a client is to delete all its files."""
    return index.disks.poll_remove_all(now_ms, client)


def offload_heartbeat(index: Index, now_ms: int, client: bytes, offloading: bool) -> Answered[list[DiskTask]]:
    """The objects that a client is to write to its disk."""
    return index.disks.offload_heartbeat(now_ms, client, offloading)


def offloaded(index: Index, now_ms: int, client: bytes, notices: Sequence[WrittenToDisk]) -> Acknowledged:
    """A client has objects on its disk."""
    return index.disks.offloaded(now_ms, client, notices)


def evict_disk(
    index: Index, now_ms: int, client: bytes, tenant: bytes, keys: Sequence[bytes], kind: int
) -> Answered[list[Code]]:
    """A client deletes its copies of objects."""
    return index.disks.evict(now_ms, client, tenant, keys, kind)


def promotion_heartbeat(index: Index, now_ms: int, client: bytes) -> Answered[list[DiskTask]]:
    """The objects that a client is to read back into memory."""
    return index.disks.promotion_heartbeat(now_ms, client)


def promotion_start(
    index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes, size: int, preferred: Sequence[str]
) -> SpaceHandedOut[Object]:
    return index.disks.promotion_start(now_ms, client, tenant, key, size, preferred)


def promotion_end(index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
    return index.disks.promotion_end(now_ms, client, tenant, key)


def promotion_failed(index: Index, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> Acknowledged:
    return index.disks.promotion_failed(now_ms, client, tenant, key)


# --- tenants ---


def set_quota(index: Index, now_ms: int, tenant: bytes, requested_bytes: int) -> Answered[TenantQuota]:
    """Give a tenant a quota."""
    return index.tenants.set_quota(now_ms, tenant, requested_bytes)


def delete_quota(index: Index, now_ms: int, tenant: bytes) -> Answered[TenantQuota]:
    """Take the quota of an empty tenant away."""
    return index.tenants.delete_quota(now_ms, tenant)


def quotas(index: Index, now_ms: int) -> Answered[list[TenantQuota]]:
    """The tenants that have a quota or objects."""
    return index.tenants.quotas(now_ms)


# --- drain jobs ---


def start_drain(
    index: Index, now_ms: int, segments: Sequence[str], targets: Sequence[str], concurrency: int, created_ms: int
) -> Answered[bytes]:
    """Start to empty segments; the value is the id of the job."""
    return index.draining.start(now_ms, segments, targets, concurrency, created_ms)


def cancel_drain(index: Index, now_ms: int, job: bytes) -> Acknowledged:
    """Stop a drain job."""
    return index.draining.cancel(now_ms, job)


def query_drain(index: Index, now_ms: int, job: bytes) -> Answered[DrainProgress | None]:
    """A drain job and its counters."""
    return index.draining.query(now_ms, job)
