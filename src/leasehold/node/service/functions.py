"""The wire's calls, carried out on the index: every function of a release, and our own.

A call is a method that takes the arguments of its table and returns `(result, after)`: what to answer, and the record
that must be durable before the answer leaves. The hot ones have leaner handlers in `hot.py`. What is not offered is
answered as the C++ master answers when the feature is off, found by asking it (`tests/wire/test_like_the_master.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec

from leasehold.base.codes import Code
from leasehold.index.index import Index
from leasehold.index.model import NATIVE_PROTOCOL, SegmentSpec, Task
from leasehold.index.settings import IndexSettings
from leasehold.node.service.descriptors import message_of
from leasehold.node.service.hot_calls import DONE, HotPaths, failure, fixed, framed, heads, width_for
from leasehold.node.service.leaving import Leaving
from leasehold.node.service.native_calls import OwnCalls
from leasehold.node.service.range_removes import Ranges
from leasehold.node.service.regex_listing import Listing
from leasehold.runtime.clock import wall_us
from leasehold.wire import messages as m
from leasehold.wire.body import pack
from leasehold.wire.compiler import argument_reader
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import response
from leasehold.wire.gate import Gate, OpenGate
from leasehold.wire.schema import Failed, counted
from leasehold.wire.tables.release import Function, Release
from leasehold.wire.text import decode_text

Result = tuple[Any, int]
"""What to answer (as the function's table says), and the record that must be durable first."""

_SEGMENT_MOUNTED: Final = 1
_SEGMENT_DRAINING: Final = 4
_TASK_RETRIES: Final = 10
_FEATURE_OFF: Final = Failed(-1011)
_NO_LOCAL_DISK: Final = Failed(-1300)
_NOT_FOUND, _NOT_READY = Failed(Code.NOT_FOUND), Failed(Code.NOT_READY)
_NO_SEGMENT: Final = Failed(Code.SEGMENT_NOT_FOUND)

# Features that are off here, and how the C++ master answers when they are off there.
_OFF: Final[dict[str, Any]] = {
    "MountNoFSegment": _FEATURE_OFF,
    "ReMountNoFSegment": _FEATURE_OFF,
    "UnmountNoFSegment": _FEATURE_OFF,
    "GetAllNoFSegments": [],
    "GetNoFSegmentsByName": _NO_SEGMENT,
    "DynamicReplicaCopyStart": _NOT_FOUND,
    "DynamicReplicaCopyEnd": _NOT_FOUND,
    "DynamicReplicaCopyRevoke": _NOT_FOUND,
    "MountLocalDiskSegment": _NO_LOCAL_DISK,
    "UnmountLocalDiskSegment": _NO_LOCAL_DISK,
    "OffloadObjectHeartbeat": _NO_SEGMENT,
    "PollRemoveAll": _NO_SEGMENT,
    "ReportSsdCapacity": _NO_SEGMENT,
    "NotifyOffloadSuccess": None,
    "PromotionObjectHeartbeat": _NO_SEGMENT,
    "PromotionAllocStart": _NOT_READY,
    "NotifyPromotionSuccess": _NOT_READY,
    "NotifyPromotionFailure": None,
}


def _void(code: int) -> Any:
    return None if code == Code.OK else Failed(int(code))


def _specs(segments: Iterable[m.Segment]) -> list[SegmentSpec]:
    return [SegmentSpec(s.id, s.name, s.base, s.size, s.te_endpoint, s.protocol, s.host_id) for s in segments]


def _nowhere(segment: m.Segment) -> bool:
    """A null pointer: only our own hosts count their addresses from zero."""
    return segment.base == 0 and segment.protocol != NATIVE_PROTOCOL


class MasterService:
    """Handlers for one release over one index. `decided` is told of new records, `view_version` names the epoch."""

    def __init__(
        self,
        index: Index,
        gate: Gate,
        release: Release,
        *,
        decided: Callable[[], None] = lambda: None,
        view_version: Callable[[], int] = lambda: 0,
    ) -> None:
        self._index = index
        self._gate = gate
        self._release = release
        self._leaving = Leaving(index, gate, decided)
        self._view_version = view_version

    def handlers(self) -> dict[int, Handler]:
        """Everything that is served, by function id."""
        made: dict[int, Handler] = {}
        for name, function in self._release.functions.items():
            if name in _OFF:
                made[function.id] = self._handler(function, lambda *_, answer=_OFF[name]: (answer, 0))
            else:
                made[function.id] = self._handler(function, getattr(self, _method_name(name), _missing))
        for name in ("Remove", "BatchRemove"):
            made[self._release.functions[name].id] = self._removing(self._release.functions[name])
        ranges = Ranges(self._index, self._leaving)
        listing = Listing(self._index, self._leaving, self._release)
        for name, handler in (
            ("RemoveAll", ranges.all),
            ("RemoveByRegex", ranges.by_regex),
            ("GetReplicaListByRegex", listing.by_regex),
        ):
            made[self._release.functions[name].id] = handler(self._release.functions[name])
        made.update(HotPaths(self._index, self._leaving, self._release).handlers())
        made.update(OwnCalls(self._index, self._leaving).handlers())
        return made

    def _handler(self, function: Function, method: Callable[..., Result]) -> Handler:
        read = argument_reader(function.request) if function.request is not None else None
        space = function.name in ("CopyStart", "MoveStart")
        leaving = self._leaving

        def handle(connection: Connection, seq: int, body: bytes) -> bytes | None:
            value, after = method(*read(body)) if read is not None else method()
            frame = response(seq, pack(function.returns, value, literal=False))
            return leaving.send(connection, seq, frame, after, space=space)

        return handle

    # --- about the master

    def service_ready(self) -> Result:
        return m.SERVICE_VERSION, 0

    def get_storage_config(self) -> Result:
        return m.StorageConfig("", True, 0), 0

    def get_fsdir(self) -> Result:
        return "", 0

    def ping(self, client: bytes) -> Result:
        return m.PingResponse(self._view_version(), self._index.owners.ping(self._gate.now_ms, client)), 0

    # --- what is not hot

    def put_revoke(self, client: bytes, key: bytes, kind: int, tenant: bytes) -> Result:
        reply = self._index.puts.revoke(self._gate.now_ms, client, tenant, key, kind)
        return _void(reply.code), reply.after

    def upsert_revoke(self, client: bytes, key: bytes, kind: int, tenant: bytes) -> Result:
        reply = self._index.puts.revoke(self._gate.now_ms, client, tenant, key, kind)
        return _void(reply.code), reply.after

    def batch_put_revoke(self, client: bytes, keys: list[bytes], kind: int, tenant: bytes) -> Result:
        return _each(self.put_revoke(client, key, kind, tenant) for key in keys)

    def batch_upsert_revoke(self, client: bytes, keys: list[bytes], tenant: bytes) -> Result:
        return _each(self.upsert_revoke(client, key, m.ReplicaKind.ALL, tenant) for key in keys)

    def batch_replica_clear(self, keys: list[bytes], client: bytes, segment_name: str) -> Result:
        reply = self._index.removes.clear_replicas(self._gate.now_ms, client, m.DEFAULT_TENANT, keys, segment_name)
        return (reply.value if reply.code == Code.OK else Failed(reply.code)), reply.after

    def evict_disk_replica(self, client: bytes, key: bytes, tenant: bytes, kind: int) -> Result:
        """There are no disk replicas: of an object that is here, nothing to evict is success."""
        return self._no_disk_replica(key, tenant, kind), self._index.log.last_n

    def batch_evict_disk_replica(self, client: bytes, keys: list[bytes], tenant: bytes, kind: int) -> Result:
        return [self._no_disk_replica(key, tenant, kind) for key in keys], self._index.log.last_n

    def _no_disk_replica(self, key: bytes, tenant: bytes, kind: int) -> Failed | None:
        if self._index.catalog.lookup(tenant, key) is None:
            return _NOT_FOUND
        return None if kind in (m.ReplicaKind.DISK, m.ReplicaKind.LOCAL_DISK) else Failed(Code.BAD_PARAMS)

    # --- removes: the only calls that may have to wait before they are decided

    def _removing(self, function: Function) -> Handler:
        """`Remove` and `BatchRemove`. The index bounds what one caller may remove in vain; then it says TRY_AGAIN."""
        assert function.request is not None
        read = argument_reader(function.request)
        many = function.name == "BatchRemove"
        front, results = heads(function.returns), {int(code): failure(code) if code else DONE for code in Code}
        answers = {code: fixed(front[1] + result) for code, result in results.items()}

        def step(
            connection: Connection, seq: int, keys: list[bytes], force: bool, tenant: bytes, done: list[int]
        ) -> bytes | None:
            last = 0
            for key in keys[len(done) :]:
                reply = self._index.removes.remove(self._gate.now_ms, tenant, key, force, connection.source)
                code, after = reply.code, reply.after
                if code == Code.TRY_AGAIN:
                    self._leaving.tell()
                    again = partial(step, connection, seq, keys, force, tenant, done)
                    connection.wait_durable(after, seq, again, sum(map(len, keys)))
                    return None
                if after > last:
                    last = after
                done.append(code)
            if many:
                width = width_for(len(done))
                frame = framed(
                    seq, front[width] + counted(len(done), width) + b"".join([results[code] for code in done])
                )
            else:
                frame = answers[done[0]](seq)
            return self._leaving.send(connection, seq, frame, last)

        def remove_many(connection: Connection, seq: int, body: bytes) -> bytes | None:
            keys, force, tenant = read(body)
            return step(connection, seq, list(keys), force, tenant, [])

        if many:
            return remove_many
        gate, decide, send = self._gate, self._index.removes.remove, self._leaving.send

        def remove(connection: Connection, seq: int, body: bytes) -> bytes | None:
            key, force, tenant = read(body)
            reply = decide(gate.now_ms, tenant, key, force, connection.source)
            if reply.code == Code.TRY_AGAIN:
                return step(connection, seq, [key], force, tenant, [])
            return send(connection, seq, answers[reply.code](seq), reply.after)

        return remove

    # --- segments

    def mount_segment(self, segment: m.Segment, client: bytes) -> Result:
        if _nowhere(segment):
            return Failed(Code.BAD_PARAMS), 0
        reply = self._index.mounts.mount(self._gate.now_ms, client, _specs([segment])[0])
        return _void(reply.code), reply.after

    def re_mount_segment(self, segments: list[m.Segment], client: bytes) -> Result:
        if any(_nowhere(segment) for segment in segments):
            return Failed(Code.BAD_PARAMS), 0
        reply = self._index.mounts.remount(self._gate.now_ms, client, _specs(segments))
        return _void(reply.code), reply.after

    def unmount_segment(self, segment: bytes, client: bytes) -> Result:
        """Unmounting what is not there is success: the C++ master says so, and its clients repeat it."""
        reply = self._index.mounts.unmount(self._gate.now_ms, client, segment)
        return (None if reply.code == Code.SEGMENT_NOT_FOUND else _void(reply.code)), reply.after

    def graceful_unmount_segment(self, segment: bytes, client: bytes, grace_ms: int) -> Result:
        reply = self._index.mounts.drain(self._gate.now_ms, client, segment, grace_ms)
        return _void(reply.code), reply.after

    def query_segment_status(self, name: str) -> Result:
        found = self._index.space.segments.by_name.get(name)
        return self._segment_status(found[0] if found else None)

    def query_segment_status_by_id(self, segment: bytes) -> Result:
        return self._segment_status(self._index.space.segments.by_id.get(segment))

    def _segment_status(self, segment: Any) -> Result:
        if segment is None:
            return _NO_SEGMENT, self._index.log.last_n
        if segment.drain_end:
            return _SEGMENT_DRAINING, self._index.log.last_n
        return _SEGMENT_MOUNTED, segment.incarnation

    def batch_query_ip(self, clients: list[bytes]) -> Result:
        """The hosts (without ports) on which clients lend memory; clients without any are left out."""
        hosts = {client: self._hosts(client) for client in clients}
        return {client: found for client, found in hosts.items() if found}, self._index.log.last_n

    def _hosts(self, client: bytes) -> list[str]:
        endpoints = self._index.owners.endpoints_of(client)
        return list(dict.fromkeys(endpoint.rpartition(":")[0] or endpoint for endpoint in endpoints))

    # --- copies, moves, tasks

    def copy_start(self, client: bytes, key: bytes, tenant: bytes, source: str, targets: list[str]) -> Result:
        reply = self._index.copies.copy_start(self._gate.now_ms, client, tenant, key, source, targets)
        code, plan, after = reply.code, reply.value, reply.after
        if plan is None:
            return Failed(code), after
        size = self._size_of(tenant, key)
        return m.CopyPlan(message_of(plan[0], size), [message_of(each, size) for each in plan[1]]), after

    def copy_end(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        reply = self._index.copies.copy_end(self._gate.now_ms, client, tenant, key)
        return _void(reply.code), reply.after

    def copy_revoke(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        reply = self._index.copies.copy_revoke(self._gate.now_ms, client, tenant, key)
        return _void(reply.code), reply.after

    def move_start(self, client: bytes, key: bytes, tenant: bytes, source: str, target: str) -> Result:
        reply = self._index.copies.move_start(self._gate.now_ms, client, tenant, key, source, target)
        code, plan, after = reply.code, reply.value, reply.after
        if plan is None:
            return Failed(code), after
        size = self._size_of(tenant, key)
        return m.MovePlan(message_of(plan[0], size), message_of(plan[1], size) if plan[1] else None), after

    def move_end(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        reply = self._index.copies.move_end(self._gate.now_ms, client, tenant, key)
        return _void(reply.code), reply.after

    def move_revoke(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        reply = self._index.copies.move_revoke(self._gate.now_ms, client, tenant, key)
        return _void(reply.code), reply.after

    def _size_of(self, tenant: bytes, key: bytes) -> int:
        found = self._index.catalog.lookup(tenant, key)
        return found.size if found is not None else 0

    def create_copy_task(self, key: bytes, tenant: bytes, targets: list[str]) -> Result:
        reply = self._index.tasks.create_copy(self._gate.now_ms, tenant, key, targets)
        return (reply.value if reply.code == Code.OK else Failed(reply.code)), reply.after

    def create_move_task(self, key: bytes, tenant: bytes, source: str, target: str) -> Result:
        reply = self._index.tasks.create_move(self._gate.now_ms, tenant, key, source, target)
        return (reply.value if reply.code == Code.OK else Failed(reply.code)), reply.after

    def fetch_tasks(self, client: bytes, limit: int) -> Result:
        reply = self._index.tasks.fetch(self._gate.now_ms, client, limit)
        return [self._assignment(task) for task in reply.value], reply.after

    def mark_task_to_complete(self, client: bytes, report: m.TaskReport) -> Result:
        if report.status not in (m.TaskStatus.FAILED, m.TaskStatus.SUCCESS):
            return Failed(Code.BAD_PARAMS), 0
        reply = self._index.tasks.finish(self._gate.now_ms, client, report.id, report.status, report.message)
        return _void(reply.code), reply.after

    def query_task(self, task_id: bytes) -> Result:
        reply = self._index.tasks.query(task_id)
        task, after = reply.value, reply.after
        if task is None:
            return Failed(reply.code), after
        created_ms, updated_ms = self._wall_ms(task.created_ms), self._wall_ms(task.updated_ms)
        return m.TaskView(task.id, task.kind, task.status, created_ms, updated_ms, task.client, task.message), after

    def _assignment(self, task: Task) -> m.TaskAssignment:
        """A task as its executor gets it; the payload is JSON with the names that the C++ client looks for."""
        payload: dict[str, Any] = {
            "tenant_id": decode_text(task.tenant),
            "key": decode_text(task.key),
            "source": task.source,
        }
        if task.kind == m.TaskKind.COPY:
            payload["targets"] = list(task.targets)
            payload.update(_NO_DYNAMIC_REPLICATION)
        else:
            payload["target"] = task.targets[0]
        text = msgspec.json.encode(payload).decode()
        return m.TaskAssignment(task.id, task.kind, text, self._wall_ms(task.created_ms), _TASK_RETRIES)

    def _wall_ms(self, leader_ms: int) -> int:
        """For people: leader time on the wall clock."""
        return wall_us() // 1000 - (self._gate.now_ms - leader_ms)


_NO_DYNAMIC_REPLICATION: Final = {
    "dynamic_replication_lease_id_high": 0,
    "dynamic_replication_lease_id_low": 0,
    "dynamic_replication_version_epoch": 0,
}


def _each(results: Iterable[Result]) -> Result:
    values, last = [], 0
    for value, after in results:
        values.append(value)
        last = max(last, after)
    return values, last


def _missing(*_: Any) -> Result:
    raise NotImplementedError("a function of the table has no method: a test sees to it that there is none")


def _method_name(name: str) -> str:
    """`ReMountSegment` -> `re_mount_segment`."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def warm(release: Release) -> None:
    """Compile what a release needs, so that a promotion finds it done."""
    MasterService(Index(IndexSettings(), lambda _: 0), OpenGate(), release).handlers()
