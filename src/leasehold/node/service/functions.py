"""Handlers for every function of a release, and for Leasehold's own.

A function is a method that takes the arguments of its table and returns `(result, reply)`: the value to send, and the
typed reply of the command behind it. The hot functions have optimised handlers in `hot_reads.py` and `hot_puts.py`.
Functions that are not offered answer as the C++ master does when the feature is off
(`tests/wire/test_like_the_master.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec

from leasehold.base.codes import Code
from leasehold.base.measures import Calls
from leasehold.ha.outbox import Outbox
from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.index.model import NATIVE_PROTOCOL, Segment, SegmentSpec, Task
from leasehold.index.replies import NOTHING_SHOWN, Answered, Reply, View
from leasehold.index.settings import IndexSettings
from leasehold.node.service import commands
from leasehold.node.service.call_counts import CallCounts
from leasehold.node.service.descriptors import message_of
from leasehold.node.service.disk_functions import DiskFunctions
from leasehold.node.service.frames import DONE, Refusals, code_name, failure, fixed, framed, heads, width_for
from leasehold.node.service.hot_puts import HotPuts
from leasehold.node.service.hot_reads import HotReads
from leasehold.node.service.metadata_owners import OwnerPings
from leasehold.node.service.native_calls import NativeCalls
from leasehold.node.service.range_removes import RangeRemoves
from leasehold.node.service.regex_listing import RegexListing
from leasehold.node.service.storage_hosts import StorageHosts
from leasehold.runtime.clock import wall_us
from leasehold.wire import messages as m
from leasehold.wire.answers import Answer
from leasehold.wire.body import pack
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import response
from leasehold.wire.native import HOST_PING
from leasehold.wire.schema import Failed, counted
from leasehold.wire.tables.release import Function, Release
from leasehold.wire.text import decode_text

Result = tuple[Any, Reply]
"""The value to send (of the type in the function's table), and the reply: its kind, and the record it waits for."""

_SEGMENT_MOUNTED: Final = 1
_SEGMENT_DRAINING: Final = 4
_TASK_RETRIES: Final = 10
_FEATURE_OFF: Final = Failed(-1011)
_NOT_FOUND: Final = Failed(Code.NOT_FOUND)
_NO_SEGMENT: Final = Failed(Code.SEGMENT_NOT_FOUND)

# Features that are not offered, and the answer of the C++ master when they are off.
_OFF: Final[dict[str, Any]] = {
    "MountNoFSegment": _FEATURE_OFF,
    "ReMountNoFSegment": _FEATURE_OFF,
    "UnmountNoFSegment": _FEATURE_OFF,
    "GetAllNoFSegments": [],
    "GetNoFSegmentsByName": _NO_SEGMENT,
    "DynamicReplicaCopyStart": _NOT_FOUND,
    "DynamicReplicaCopyEnd": _NOT_FOUND,
    "DynamicReplicaCopyRevoke": _NOT_FOUND,
}


def _void(code: int) -> Any:
    return None if code == Code.OK else Failed(int(code))


def _specs(segments: Iterable[m.Segment]) -> list[SegmentSpec]:
    return [SegmentSpec(s.id, s.name, s.base, s.size, s.te_endpoint, s.protocol, s.host_id) for s in segments]


def _nowhere(segment: m.Segment) -> bool:
    """A null pointer: only Leasehold's own hosts count their addresses from zero."""
    return segment.base == 0 and segment.protocol != NATIVE_PROTOCOL


class MasterService:
    """Handlers for one release. `view_version` names the epoch."""

    def __init__(
        self,
        serving: Serving,
        release: Release,
        *,
        view_version: Callable[[], int] = lambda: 0,
        owner_pings: OwnerPings | None = None,
        calls: Calls | None = None,
        counts: CallCounts | None = None,
        hosts: StorageHosts | None = None,
    ) -> None:
        self._serving = serving
        self._hosts = hosts or StorageHosts()
        self._counts = counts or CallCounts()
        self._owner_pings = owner_pings or OwnerPings()
        self._calls = Calls() if calls is None else calls  # counts the results that are errors
        self._execute = serving.execute
        self._release = release
        self._view_version = view_version

    def handlers(self) -> dict[int, Handler]:
        """Every handler, by function id."""
        functions, serving = self._release.functions, self._serving
        made: dict[int, Handler] = {}
        off = {**_OFF, **self._release.off}
        disks = DiskFunctions(serving)
        for name, function in functions.items():
            if name in off:
                made[function.id] = self._handler(function, lambda *_, value=off[name]: (value, NOTHING_SHOWN))
            else:
                method = _method_name(name)
                owner = self if hasattr(self, method) else disks
                made[function.id] = self._handler(function, getattr(owner, method, _missing))
        calls = self._calls
        ranges, listing = RangeRemoves(serving, calls), RegexListing(serving, self._release, calls)
        for name, make in (
            ("Ping", self._pinging),
            ("Remove", self._removing),
            ("BatchRemove", self._removing),
            ("RemoveAll", ranges.all),
            ("RemoveByRegex", ranges.by_regex),
            ("GetReplicaListByRegex", listing.by_regex),
        ):
            made[functions[name].id] = make(functions[name])
        made.update(HotReads(serving, self._release, calls, self._counts).handlers())
        made.update(HotPuts(serving, self._release, calls, self._counts).handlers())
        native = NativeCalls(serving, calls, self._counts, self._hosts)
        made.update(native.handlers())
        made[HOST_PING.id] = native.host_ping(self._view_version, self._owner_pings)
        made.update(self._owner_pings.handlers(lambda: serving.index))
        return made

    def _handler(self, function: Function, method: Callable[..., Result]) -> Handler:
        read = function.reader()
        answer, count, name = self._serving.answer, self._counts.result, function.name

        def handle(_: Connection, seq: int, body: bytes) -> Answer:
            arguments = read(body)
            value, reply = method(*arguments)
            self._count_failures(function, value)
            count(name, arguments, value)
            return answer(reply, response(seq, pack(function.returns, value, literal=False)))

        return handle

    def _count_failures(self, function: Function, value: Any) -> None:
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Failed):
                self._calls.failed(function.id, code_name(each.code))

    # --- about the master ---

    def service_ready(self) -> Result:
        return m.SERVICE_VERSION, NOTHING_SHOWN

    def _pinging(self, function: Function) -> Handler:
        """`Ping`, which also remembers the connection that it came on."""
        read, execute, answer, pings = (
            function.reader(),
            self._execute,
            self._serving.answer,
            self._owner_pings,
        )

        def handle(connection: Connection, seq: int, body: bytes) -> Answer:
            (client,) = read(body)
            pings.pinged(client, connection)
            reply = execute(commands.ping, client)
            value = m.PingResponse(self._view_version(), reply.value)
            return answer(reply, response(seq, pack(function.returns, value, literal=False)))

        return handle

    # --- objects ---

    def put_revoke(self, client: bytes, key: bytes, kind: int, tenant: bytes) -> Result:
        reply = self._execute(commands.revoke, client, tenant, key, kind)
        return _void(reply.code), reply

    def upsert_revoke(self, client: bytes, key: bytes, kind: int, tenant: bytes) -> Result:
        reply = self._execute(commands.revoke, client, tenant, key, kind)
        return _void(reply.code), reply

    def batch_put_revoke(self, client: bytes, keys: list[bytes], kind: int, tenant: bytes) -> Result:
        return _each(self.put_revoke(client, key, kind, tenant) for key in keys)

    def batch_upsert_revoke(self, client: bytes, keys: list[bytes], tenant: bytes) -> Result:
        return _each(self.upsert_revoke(client, key, m.ReplicaKind.ALL, tenant) for key in keys)

    def batch_replica_clear(self, keys: list[bytes], client: bytes, segment_name: str) -> Result:
        reply = self._execute(commands.clear_replicas, client, m.DEFAULT_TENANT, keys, segment_name)
        return (reply.value if reply.code == Code.OK else Failed(reply.code)), reply

    # --- removes: the only functions that may have to wait before they are decided ---

    def _removing(self, function: Function) -> Handler:
        """`Remove` and `BatchRemove`."""
        read, serving = function.reader(), self._serving
        front, made = heads(function.returns), {int(code): failure(code) if code else DONE for code in Code}
        results = Refusals(made, self._calls, function.id)
        answers = Refusals({code: fixed(front[1] + result) for code, result in made.items()}, self._calls, function.id)

        batches = self._counts.batches_of("BatchRemove")

        def write_one(seq: int, codes: list[Code]) -> bytes:
            return answers[codes[0]](seq)

        def write_many(seq: int, codes: list[Code]) -> bytes:
            batches.add(len(codes), sum(code != Code.OK for code in codes))
            width = width_for(len(codes))
            payload = b"".join([results[code] for code in codes])
            return framed(seq, front[width] + counted(len(codes), width) + payload)

        def step(seq: int, removal: commands.RemoveMany, write: Callable[[int, list[Code]], bytes]) -> Answer:
            reply = serving.execute(removal.step)
            if reply.value:
                return serving.answer(reply, write(seq, removal.codes))
            return serving.resume_after(reply.after, partial(step, seq, removal, write), removal.kept_bytes)

        def remove_many(connection: Connection, seq: int, body: bytes) -> Answer:
            keys, force, tenant = read(body)
            return step(seq, commands.RemoveMany(list(keys), force, tenant, connection.source), write_many)

        remove_one, answer = serving.remove, serving.answer

        def remove(connection: Connection, seq: int, body: bytes) -> Answer:
            key, force, tenant = read(body)
            reply = remove_one(tenant, key, force, connection.source)
            code = reply.code
            if code == Code.TRY_AGAIN:
                return step(seq, commands.RemoveMany([key], force, tenant, connection.source), write_one)
            return answer(reply, answers[code](seq))

        return remove_many if function.name == "BatchRemove" else remove

    # --- segments ---

    def mount_segment(self, segment: m.Segment, client: bytes) -> Result:
        if _nowhere(segment):
            return Failed(Code.BAD_PARAMS), NOTHING_SHOWN
        reply = self._execute(commands.mount, client, _specs([segment])[0])
        return _void(reply.code), reply

    def re_mount_segment(self, segments: list[m.Segment], client: bytes) -> Result:
        if any(_nowhere(segment) for segment in segments):
            return Failed(Code.BAD_PARAMS), NOTHING_SHOWN
        reply = self._execute(commands.remount, client, _specs(segments))
        return _void(reply.code), reply

    def unmount_segment(self, segment: bytes, client: bytes) -> Result:
        """Unmounting an absent segment succeeds, as in the C++ master: its clients repeat the call."""
        reply = self._execute(commands.unmount, client, segment)
        return (None if reply.code == Code.SEGMENT_NOT_FOUND else _void(reply.code)), reply

    def graceful_unmount_segment(self, segment: bytes, client: bytes, grace_ms: int) -> Result:
        reply = self._execute(commands.drain, client, segment, grace_ms)
        return _void(reply.code), reply

    def query_segment_status(self, name: str) -> Result:
        return _segment_status(self._execute(commands.segment_by_name, name))

    def query_segment_status_by_id(self, segment: bytes) -> Result:
        return _segment_status(self._execute(commands.segment_by_id, segment))

    def batch_query_ip(self, clients: list[bytes]) -> Result:
        """The hosts (without ports) on which clients lend memory; clients without any are left out."""
        reply = self._execute(commands.client_endpoints, clients)
        hosts = {client: _hosts(endpoints) for client, endpoints in reply.value.items()}
        return {client: found for client, found in hosts.items() if found}, reply

    # --- copies, moves, tasks ---

    def copy_start(self, client: bytes, key: bytes, tenant: bytes, source: str, targets: list[str]) -> Result:
        reply = self._execute(commands.copy_start, client, tenant, key, source, targets)
        if reply.value is None:
            return Failed(reply.code), reply
        (origin, copies), size = reply.value, self._size_of(tenant, key)
        return m.CopyPlan(message_of(origin, size), [message_of(each, size) for each in copies]), reply

    def copy_end(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        reply = self._execute(commands.copy_end, client, tenant, key)
        return _void(reply.code), reply

    def copy_revoke(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        reply = self._execute(commands.copy_revoke, client, tenant, key)
        return _void(reply.code), reply

    def move_start(self, client: bytes, key: bytes, tenant: bytes, source: str, target: str) -> Result:
        reply = self._execute(commands.move_start, client, tenant, key, source, target)
        if reply.value is None:
            return Failed(reply.code), reply
        (origin, copy), size = reply.value, self._size_of(tenant, key)
        return m.MovePlan(message_of(origin, size), message_of(copy, size) if copy else None), reply

    def move_end(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        reply = self._execute(commands.move_end, client, tenant, key)
        return _void(reply.code), reply

    def move_revoke(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        reply = self._execute(commands.move_revoke, client, tenant, key)
        return _void(reply.code), reply

    def _size_of(self, tenant: bytes, key: bytes) -> int:
        found = self._serving.index.catalog.lookup(tenant, key)
        return found.size if found is not None else 0

    def create_copy_task(self, key: bytes, tenant: bytes, targets: list[str]) -> Result:
        return _task(self._execute(commands.create_copy_task, tenant, key, targets))

    def create_move_task(self, key: bytes, tenant: bytes, source: str, target: str) -> Result:
        return _task(self._execute(commands.create_move_task, tenant, key, source, target))

    def fetch_tasks(self, client: bytes, limit: int) -> Result:
        reply = self._execute(commands.fetch_tasks, client, limit)
        return [self._assignment(task) for task in reply.value], reply

    def mark_task_to_complete(self, client: bytes, report: m.TaskReport) -> Result:
        if report.status not in (m.TaskStatus.FAILED, m.TaskStatus.SUCCESS):
            return Failed(Code.BAD_PARAMS), NOTHING_SHOWN
        reply = self._execute(commands.finish_task, client, report.id, report.status, report.message)
        return _void(reply.code), reply

    def query_task(self, task_id: bytes) -> Result:
        reply = self._execute(commands.query_task, task_id)
        task = reply.value
        if task is None:
            return Failed(reply.code), reply
        created_ms, updated_ms = self._wall_ms(task.created_ms), self._wall_ms(task.updated_ms)
        return m.TaskView(task.id, task.kind, task.status, created_ms, updated_ms, task.client, task.message), reply

    def _assignment(self, task: Task) -> m.TaskAssignment:
        """A task as its executor receives it; the payload is JSON with the names that the C++ client expects."""
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
        """Leader time on the wall clock, for people to read."""
        return wall_us() // 1000 - (self._serving.now_ms - leader_ms)


_NO_DYNAMIC_REPLICATION: Final = {
    "dynamic_replication_lease_id_high": 0,
    "dynamic_replication_lease_id_low": 0,
    "dynamic_replication_version_epoch": 0,
}


def _segment_status(reply: View[Segment | None]) -> Result:
    if reply.value is None:
        return _NO_SEGMENT, reply
    return (_SEGMENT_DRAINING if reply.value.drain_end else _SEGMENT_MOUNTED), reply


def _hosts(endpoints: list[str]) -> list[str]:
    return list(dict.fromkeys(endpoint.rpartition(":")[0] or endpoint for endpoint in endpoints))


def _task(reply: Answered[bytes]) -> Result:
    return (reply.value if reply.code == Code.OK else Failed(reply.code)), reply


def _each(results: Iterable[Result]) -> Result:
    """One answer for several commands: it waits for the last of their records."""
    values, last_n = [], 0
    for value, reply in results:
        values.append(value)
        last_n = max(last_n, reply.after)
    return values, View(None, last_n)


def _missing(*_: Any) -> Result:
    raise NotImplementedError("a function of the table has no method: a test checks that there is none")


def _method_name(name: str) -> str:
    """`ReMountSegment` -> `re_mount_segment`."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def warm(release: Release) -> None:
    """Compile a release's readers in advance, so that a promotion does not wait for it."""
    MasterService(Serving(Index(IndexSettings(), lambda _: 0), Outbox.always_open()), release).handlers()
