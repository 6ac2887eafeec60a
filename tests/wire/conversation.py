"""A long conversation with a master, call by call, below the C++ client: also what that client never says.

`talk` returns one line for each call, with what differs from run to run (ids, addresses, times, which of two equal
segments) left out, so that two masters can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from leasehold.wire import messages as m
from leasehold.wire.body import pack, unpack
from leasehold.wire.channel import Channel, open_channel
from leasehold.wire.errors import RpcRefused
from leasehold.wire.schema import Failed
from leasehold.wire.tables import V0_3_13

CLIENT, STRANGER, TASK = b"c" * 16, b"o" * 16, b"x" * 16
SEGMENT, SECOND = b"s" * 16, b"t" * 16
T = m.DEFAULT_TENANT
ALL = int(m.ReplicaKind.ALL)
PLAIN = m.ReplicateConfig()
LAST_TASK: Any = object()  # stands for the id that the last created task got

Step = tuple[Any, ...]


def segment(id_: bytes, name: str, base: int, size: int = 64 << 20, port: int = 9999) -> m.Segment:
    return m.Segment(id_, name, base, size, f"127.0.0.1:{port}", "tcp", "")


FIRST_SEGMENT = segment(SEGMENT, "seg1", 0x7F0000000000)
SECOND_SEGMENT = segment(SECOND, "seg2", 0x7F1000000000, port=9998)


def meta(key: bytes, checksum: int | None = None) -> m.ObjectMeta:
    return m.ObjectMeta(key, checksum)


def wanting(**changes: Any) -> m.ReplicateConfig:
    return m.ReplicateConfig(**changes)


NOTHING_MOUNTED: list[Step] = [
    ("ServiceReady",),
    ("GetStorageConfig",),
    ("GetFsdir",),
    ("Ping", CLIENT),
    ("ExistKey", b"k", T),
    ("ExistKey", b"", T),
    ("BatchExistKey", [], T),
    ("BatchExistKey", [b"a", b""], T),
    ("GetReplicaList", b"k", T),
    ("GetReplicaList", b"", T),
    ("BatchGetReplicaList", [b"a", b""], T),
    ("BatchGetReplicaList", [], T),
    ("GetReplicaListByRegex", b".*", T),
    ("GetReplicaListByRegex", b"(", T),
    ("PutStart", CLIENT, b"k", 10, PLAIN, T),
    ("PutStart", CLIENT, b"", 10, PLAIN, T),
    ("PutStart", CLIENT, b"k", 0, PLAIN, T),
    ("PutEnd", CLIENT, meta(b"k"), ALL, T),
    ("PutRevoke", CLIENT, b"k", ALL, T),
    ("BatchPutStart", CLIENT, [b"a", b"b"], [1, 2], PLAIN, T),
    ("BatchPutStart", CLIENT, [b"a", b"b"], [1], PLAIN, T),
    ("BatchPutStart", CLIENT, [], [], PLAIN, T),
    ("BatchPutEnd", CLIENT, [meta(b"a")], ALL, T),
    ("BatchPutEnd", CLIENT, [], ALL, T),
    ("BatchPutRevoke", CLIENT, [b"a"], ALL, T),
    ("UpsertStart", CLIENT, b"k", 10, PLAIN, T),
    ("UpsertEnd", CLIENT, meta(b"k"), ALL, T),
    ("UpsertRevoke", CLIENT, b"k", ALL, T),
    ("BatchUpsertStart", CLIENT, [b"a"], [1], PLAIN, T),
    ("BatchUpsertStart", CLIENT, [b"a"], [], PLAIN, T),
    ("BatchUpsertEnd", CLIENT, [meta(b"a")], T),
    ("BatchUpsertRevoke", CLIENT, [b"a"], T),
    ("Remove", b"k", False, T),
    ("Remove", b"", False, T),
    ("RemoveByRegex", b"(", False, T),
    ("RemoveByRegex", b".*", False, T),
    ("RemoveAll", False, T),
    ("BatchRemove", [b"a", b""], False, T),
    ("UnmountSegment", SEGMENT, CLIENT),
    ("GracefulUnmountSegment", SEGMENT, CLIENT, 0),
    ("MountNoFSegment", m.NofSegment(b"n" * 16, "n", 0, 1 << 20, "e"), CLIENT),
    ("ReMountNoFSegment", [], CLIENT),
    ("UnmountNoFSegment", b"n" * 16, CLIENT),
    ("GetAllNoFSegments",),
    ("GetNoFSegmentsByName", "n"),
    ("QuerySegmentStatus", "seg1"),
    ("QuerySegmentStatusById", SEGMENT),
    ("BatchQueryIp", [CLIENT]),
    ("BatchQueryIp", []),
    ("BatchReplicaClear", [b"k"], CLIENT, ""),
    ("BatchReplicaClear", [], CLIENT, ""),
    ("FetchTasks", CLIENT, 16),
    ("MarkTaskToComplete", CLIENT, m.TaskReport(TASK, 3, "ok")),
    ("CreateCopyTask", b"k", T, ["seg1"]),
    ("CreateMoveTask", b"k", T, "seg1", "seg2"),
    ("QueryTask", TASK),
    ("CopyStart", CLIENT, b"k", T, "seg1", ["seg2"]),
    ("CopyEnd", CLIENT, b"k", T),
    ("CopyRevoke", CLIENT, b"k", T),
    ("MoveStart", CLIENT, b"k", T, "a", "b"),
    ("MoveEnd", CLIENT, b"k", T),
    ("MoveRevoke", CLIENT, b"k", T),
]

FEATURES_OFF: list[Step] = [
    ("DynamicReplicaCopyStart", CLIENT, b"k", T, "seg1", ["seg2"], b"l" * 16, 1),
    ("DynamicReplicaCopyEnd", CLIENT, b"k", T, b"l" * 16, 1),
    ("DynamicReplicaCopyRevoke", CLIENT, b"k", T, b"l" * 16, 1),
    ("MountLocalDiskSegment", CLIENT, True),
    ("MountLocalDiskSegment", CLIENT, False),
    ("UnmountLocalDiskSegment", CLIENT),
    ("OffloadObjectHeartbeat", CLIENT, True),
    ("OffloadObjectHeartbeat", CLIENT, False),
    ("PollRemoveAll", CLIENT),
    ("ReportSsdCapacity", CLIENT, 100),
    ("NotifyOffloadSuccess", CLIENT, [], []),
    ("NotifyOffloadSuccess", CLIENT, [m.OffloadItem(T, b"k", 1)], [m.OffloadedMeta(0, 0, 1, 1, "e")]),
    ("PromotionObjectHeartbeat", CLIENT),
    ("PromotionAllocStart", CLIENT, b"k", T, 10, []),
    ("NotifyPromotionSuccess", CLIENT, b"k", T),
    ("NotifyPromotionFailure", CLIENT, b"k", T),
    ("EvictDiskReplica", CLIENT, b"k", T, 1),
    ("EvictDiskReplica", CLIENT, b"k", T, 2),
    ("EvictDiskReplica", CLIENT, b"k", T, 0),
    ("BatchEvictDiskReplica", CLIENT, [b"k"], T, 1),
    ("BatchEvictDiskReplica", CLIENT, [], T, 1),
]

MOUNTING: list[Step] = [
    ("MountSegment", segment(b"z" * 16, "z", 0), CLIENT),
    ("MountSegment", segment(b"z" * 16, "z", 0x1000, 0), CLIENT),
    ("MountSegment", FIRST_SEGMENT, CLIENT),
    ("MountSegment", FIRST_SEGMENT, CLIENT),
    ("MountSegment", SECOND_SEGMENT, CLIENT),
    ("Ping", CLIENT),
    ("ReMountSegment", [FIRST_SEGMENT, SECOND_SEGMENT], CLIENT),
    ("Ping", CLIENT),
    ("QuerySegmentStatus", "seg1"),
    ("QuerySegmentStatusById", SEGMENT),
    ("BatchQueryIp", [CLIENT, b"q" * 16]),
]

PUTTING: list[Step] = [
    ("PutStart", CLIENT, b"k", 10, PLAIN, T),
    ("PutStart", CLIENT, b"k", 10, PLAIN, T),
    ("GetReplicaList", b"k", T),
    ("ExistKey", b"k", T),
    ("Remove", b"k", False, T),
    ("Remove", b"k", True, T),
    ("RemoveAll", False, T),
    ("RemoveAll", True, T),
    ("RemoveByRegex", b"k", True, T),
    ("BatchRemove", [b"k"], True, T),
    ("UpsertStart", CLIENT, b"k", 10, PLAIN, T),
    ("PutEnd", STRANGER, meta(b"k"), ALL, T),
    ("PutRevoke", STRANGER, b"k", ALL, T),
    ("PutEnd", CLIENT, meta(b"k"), 1, T),
    ("PutEnd", CLIENT, meta(b"k", 77), ALL, T),
    ("PutEnd", CLIENT, meta(b"k"), ALL, T),
    ("PutRevoke", CLIENT, b"k", ALL, T),
    ("GetReplicaList", b"k", T),
    ("GetReplicaListByRegex", b"k", T),
    ("GetReplicaListByRegex", b"^$", T),
    ("BatchGetReplicaList", [b"k", b"nope"], T),
    ("PutStart", CLIENT, b"k2", 0, PLAIN, T),
    ("PutStart", CLIENT, b"k2", 10, wanting(replica_num=0), T),
    ("PutStart", CLIENT, b"k2b", 10, wanting(replica_num=2), T),
    ("PutStart", CLIENT, b"k2c", 10, wanting(replica_num=5), T),
    ("PutStart", CLIENT, b"k3", 10, wanting(preferred_segment="seg2"), T),
    ("PutStart", CLIENT, b"k4", 10, wanting(preferred_segments=["seg1", "seg2"]), T),
    ("PutStart", CLIENT, b"k5", 10, wanting(nof_replica_num=1), T),
    ("PutStart", CLIENT, b"k5", 10, wanting(dfs_replica_num=1), T),
    ("PutStart", CLIENT, b"k6", 10, wanting(soft_pin_action=7), T),
    ("PutStart", CLIENT, b"k7", 10, wanting(soft_pin_action=1, soft_pin_ttl_ms=2**60), T),
    ("PutStart", CLIENT, b"k7", 10, wanting(soft_pin_action=1, soft_pin_ttl_ms=0), T),
    ("PutStart", CLIENT, b"k7b", 10, wanting(soft_pin_action=1, soft_pin_ttl_ms=1000), T),
    ("PutStart", CLIENT, b"k8", 10, wanting(soft_pin_action=0, soft_pin_ttl_ms=1000), T),
    ("PutStart", CLIENT, b"k8b", 10, wanting(soft_pin_action=2), T),
    ("PutStart", CLIENT, b"g1", 10, wanting(group_ids=[b"g", b"h"]), T),
    ("PutStart", CLIENT, b"g2", 10, wanting(group_ids=[b"g"]), T),
    ("PutStart", CLIENT, b"g3", 10, wanting(group_ids=[]), T),
    ("PutStart", CLIENT, b"g4", 10, wanting(group_ids=[b""]), T),
    ("BatchPutStart", CLIENT, [b"h1", b"h2"], [1, 2], wanting(group_ids=[b"g"]), T),
    ("BatchPutStart", CLIENT, [b"h3", b"h4"], [1, 2], wanting(group_ids=[b"g", b"h"]), T),
    ("PutStart", CLIENT, b"h5", 10, wanting(data_type=200), T),
    ("PutStart", STRANGER, b"stranger", 10, PLAIN, T),
    ("PutRevoke", CLIENT, b"k3", ALL, T),
    ("PutRevoke", CLIENT, b"k3", ALL, T),
    *[("EvictDiskReplica", CLIENT, key, T, kind) for key in (b"k", b"k2b", b"nope") for kind in (0, 1, 2, 9)],
    *[("BatchEvictDiskReplica", CLIENT, [b"k", b"k2b", b"nope"], T, kind) for kind in (0, 1, 2, 9)],
]

THIRD, FOURTH, FIFTH = b"u" * 16, b"v" * 16, b"w" * 16
THIRD_SEGMENT = segment(THIRD, "seg3", 0x7F2000000000, port=9997)
FOURTH_SEGMENT = segment(FOURTH, "seg4", 0x7F3000000000, port=9996)
FIFTH_SEGMENT = segment(FIFTH, "", 0x7F4000000000, port=9995)
ON_THREE = wanting(preferred_segment="seg3")

# Repeated calls, calls about another client's or missing objects, and batches with a different answer per item.
MANY: list[Step] = [
    ("MountSegment", THIRD_SEGMENT, CLIENT),
    ("MountSegment", FOURTH_SEGMENT, CLIENT),
    ("ReMountSegment", [THIRD_SEGMENT, FOURTH_SEGMENT], CLIENT),
    ("MountSegment", FIFTH_SEGMENT, STRANGER),
    ("MountSegment", segment(FIFTH, "odd", 0x7F4000000000, (64 << 20) + 1, port=9995), STRANGER),
    ("QuerySegmentStatus", ""),
    ("GracefulUnmountSegment", b"y" * 16, STRANGER, 1000),
    ("GracefulUnmountSegment", FIFTH, CLIENT, 1000),
    ("GracefulUnmountSegment", FIFTH, STRANGER, 1000),
    ("QuerySegmentStatusById", FIFTH),
    ("BatchPutStart", CLIENT, [b"m1", b"m2", b"m3"], [1, 2, 3], ON_THREE, T),
    ("BatchPutEnd", STRANGER, [meta(b"m1"), meta(b"m2")], ALL, T),
    ("BatchPutEnd", CLIENT, [meta(b"m1"), meta(b"m3", 5), meta(b"nope")], ALL, T),
    ("BatchPutRevoke", STRANGER, [b"m2"], ALL, T),
    ("BatchPutRevoke", CLIENT, [b"m2", b"m1", b"nope"], ALL, T),
    ("BatchPutStart", CLIENT, [b"m1", b"m4", b"m4"], [1, 4, 4], ON_THREE, T),
    ("BatchPutStart", CLIENT, [b"", b"m6"], [1, 0], PLAIN, T),
    ("BatchExistKey", [b"m1", b"m2", b"m3", b"m4", b"m1"], T),
    ("BatchGetReplicaList", [b"m3", b"m4", b"m3"], T),
    ("BatchUpsertStart", CLIENT, [b"m1", b"m5"], [10, 10], ON_THREE, T),
    ("BatchUpsertEnd", STRANGER, [meta(b"m1"), meta(b"m5")], T),
    ("BatchUpsertEnd", CLIENT, [meta(b"m1"), meta(b"m5", 9), meta(b"nope")], T),
    ("BatchUpsertEnd", CLIENT, [meta(b"m5")], T),
    ("GetReplicaList", b"m5", T),
    ("UpsertStart", CLIENT, b"n1", 10, PLAIN, T),
    ("UpsertRevoke", STRANGER, b"n1", ALL, T),
    ("UpsertRevoke", CLIENT, b"n1", ALL, T),
    ("UpsertRevoke", CLIENT, b"n1", ALL, T),
    ("BatchUpsertStart", CLIENT, [b"n2", b"n3"], [1, 1], PLAIN, T),
    ("BatchUpsertRevoke", STRANGER, [b"n2"], T),
    ("BatchUpsertRevoke", CLIENT, [b"n2", b"n3", b"nope"], T),
    ("BatchUpsertRevoke", CLIENT, [], T),
    ("CopyStart", CLIENT, b"m5", T, "seg4", ["nope"]),
    ("CopyStart", CLIENT, b"m5", T, "seg4", ["seg3"]),
    ("MoveStart", CLIENT, b"m5", T, "seg4", "seg3"),
    ("MoveStart", CLIENT, b"m5", T, "seg3", "seg3"),
    ("MoveStart", CLIENT, b"m5", T, "nope", "nope"),
    ("MoveStart", CLIENT, b"m5", T, "seg3", "nope"),
    ("CopyStart", CLIENT, b"m5", T, "seg3", ["seg4"]),
    ("CopyStart", CLIENT, b"m5", T, "nope", ["seg4"]),
    ("MoveEnd", CLIENT, b"m5", T),
    ("MoveRevoke", CLIENT, b"m5", T),
    ("CopyRevoke", STRANGER, b"m5", T),
    ("CopyRevoke", CLIENT, b"m5", T),
    ("CopyRevoke", CLIENT, b"m5", T),
    ("MoveStart", CLIENT, b"m5", T, "seg3", "seg4"),
    ("MoveEnd", STRANGER, b"m5", T),
    ("MoveRevoke", STRANGER, b"m5", T),
    ("CopyEnd", CLIENT, b"m5", T),
    ("CopyRevoke", CLIENT, b"m5", T),
    ("MoveRevoke", CLIENT, b"m5", T),
    ("GetReplicaListByRegex", b"^m[15]$", T),
    ("GetReplicaListByRegex", b"", T),
    ("ExistKey", b"m1", b"other"),
    ("GetReplicaList", b"m1", b"other"),
    ("BatchRemove", [b"m1", b"nope", b"m1"], True, T),
    ("BatchRemove", [], True, T),
    ("RemoveByRegex", b"", True, T),
    ("BatchReplicaClear", [b"m5", b"nope"], STRANGER, ""),
    ("FetchTasks", STRANGER, 2**63),
    ("QueryTask", b"\0" * 16),
    ("ReMountSegment", [], b"n" * 16),
    ("Ping", b"n" * 16),
    ("BatchQueryIp", [CLIENT, CLIENT, b"n" * 16]),
    ("UnmountSegment", THIRD, CLIENT),
    ("UnmountSegment", FOURTH, CLIENT),
]

CHANGING: list[Step] = [
    ("UpsertStart", CLIENT, b"u", 10, PLAIN, T),
    ("UpsertEnd", STRANGER, meta(b"u"), ALL, T),
    ("UpsertEnd", CLIENT, meta(b"u"), ALL, T),
    ("UpsertStart", CLIENT, b"u", 1000, PLAIN, T),
    ("UpsertEnd", CLIENT, meta(b"u"), ALL, T),
    ("GetReplicaList", b"u", T),
    ("Remove", b"u", False, T),
    ("RemoveByRegex", b"^u$", False, T),
    ("BatchRemove", [b"u", b"zz"], False, T),
    ("CreateCopyTask", b"u", T, ["nope"]),
    ("CreateCopyTask", b"u", T, []),
    ("CreateCopyTask", b"nokey", T, ["seg2"]),
    ("CreateMoveTask", b"u", T, "nope", "seg2"),
    ("CreateMoveTask", b"u", T, "seg1", "seg1"),
    ("UpsertStart", CLIENT, b"w", 100, wanting(preferred_segment="seg1"), T),
    ("UpsertEnd", CLIENT, meta(b"w"), ALL, T),
    ("CreateCopyTask", b"w", T, ["seg2"]),
    ("QueryTask", LAST_TASK),
    ("FetchTasks", STRANGER, 16),
    ("FetchTasks", CLIENT, 0),
    ("FetchTasks", CLIENT, 16),
    ("CopyStart", CLIENT, b"w", T, "seg1", ["seg2"]),
    ("CopyStart", CLIENT, b"w", T, "seg2", ["seg1"]),
    ("CopyEnd", STRANGER, b"w", T),
    ("CopyEnd", CLIENT, b"w", T),
    ("CopyEnd", CLIENT, b"w", T),
    ("GetReplicaList", b"w", T),
    ("MarkTaskToComplete", CLIENT, (LAST_TASK, 9, "what")),
    ("MarkTaskToComplete", CLIENT, (LAST_TASK, 3, "ok")),
    ("QueryTask", LAST_TASK),
    ("MarkTaskToComplete", CLIENT, (LAST_TASK, 3, "ok")),
    ("UpsertStart", CLIENT, b"v", 100, wanting(preferred_segment="seg1"), T),
    ("UpsertEnd", CLIENT, meta(b"v"), ALL, T),
    ("CreateMoveTask", b"v", T, "seg1", "seg2"),
    ("FetchTasks", CLIENT, 16),
    ("MoveStart", CLIENT, b"v", T, "seg1", "seg2"),
    ("MoveStart", CLIENT, b"v", T, "seg2", "seg1"),
    ("MoveRevoke", CLIENT, b"v", T),
    ("MoveEnd", CLIENT, b"v", T),
    ("MoveStart", CLIENT, b"v", T, "seg1", "seg2"),
    ("MoveEnd", CLIENT, b"v", T),
    ("GetReplicaList", b"v", T),
    ("Remove", b"v", True, T),
    ("Remove", b"v", True, T),
    ("BatchReplicaClear", [b"k2b", b"k"], CLIENT, "seg1"),
    ("BatchReplicaClear", [b"k2b", b"k"], CLIENT, "zz"),
    ("RemoveByRegex", b"^h", True, T),
    ("GracefulUnmountSegment", SECOND, CLIENT, 60000),
    ("QuerySegmentStatus", "seg2"),
    ("UnmountSegment", SEGMENT, CLIENT),
    ("UnmountSegment", SEGMENT, CLIENT),
    ("QuerySegmentStatus", "seg1"),
    ("ExistKey", b"w", T),
    ("UnmountSegment", SECOND, CLIENT),
    ("ExistKey", b"w", T),
    ("RemoveAll", True, T),
    ("Ping", CLIENT),
    ("Ping", STRANGER),
    *MANY,
    # At the end, because a put that finds no space sets off an eviction, and its victims are not predictable.
    ("MountSegment", FIRST_SEGMENT, CLIENT),
    ("PutStart", CLIENT, b"k2", 1 << 40, PLAIN, T),
]

STEPS = [*NOTHING_MOUNTED, *FEATURES_OFF, *MOUNTING, *PUTTING, *CHANGING]


def steady(value: Any) -> Any:
    """A result without what differs from run to run."""
    if isinstance(value, m.ReplicaDescriptor):
        if isinstance(value.place, m.LocalDiskReplica):
            return value.place, value.status
        assert isinstance(value.place, m.MemoryReplica)
        return f"<{value.place.buffer.size} bytes, {value.place.buffer.protocol}, status {value.status}>"
    if isinstance(value, m.GetReplicaListResponse):
        return steady(value.replicas), value.lease_ttl_ms, value.checksum
    if isinstance(value, m.CopyPlan):
        return steady(value.source), steady(value.targets)
    if isinstance(value, m.MovePlan):
        return steady(value.source), steady(value.target)
    if isinstance(value, m.TaskView):
        return value.type, value.status, value.client_id, value.message
    if isinstance(value, m.TaskAssignment):
        return value.type, value.payload, value.max_retries
    if isinstance(value, Failed):
        return value.code
    if isinstance(value, list):
        return [steady(each) for each in value]
    if isinstance(value, dict):
        return {key: steady(each) for key, each in sorted(value.items())}
    return value


async def call(channel: Channel, step: Step) -> Any:
    """Make one call; an RPC error is a result too."""
    name, *arguments = step
    function = V0_3_13.functions[name]
    body = b""
    if function.request is not None:
        body = pack(function.request, tuple(arguments) if len(arguments) > 1 else arguments[0])
    try:
        answered = await channel.raw_call(function.id, body, timeout_ms=60_000)
    except RpcRefused as error:
        return f"rpc error {error.err}: {error.reason}"
    return unpack(function.returns, answered.body)


def filled(step: Step, task: bytes) -> Step:
    """The step with the last task's id in its place."""

    def fill(value: Any) -> Any:
        if value is LAST_TASK:
            return task
        if isinstance(value, tuple):
            return m.TaskReport(task, *value[1:])
        return value

    return tuple(fill(each) for each in step)


def shown(step: Step) -> Iterator[str]:
    for each in step[1:]:
        if each is LAST_TASK or (isinstance(each, tuple) and each[0] is LAST_TASK):
            yield "the last task" if each is LAST_TASK else f"the last task {each[1:]}"
        elif isinstance(each, m.ReplicateConfig):
            yield "plain" if each == PLAIN else "wanting"
        else:
            yield repr(each)


async def talk(host: str, port: int, steps: Sequence[Step] | None = None) -> list[str]:
    """The whole conversation (or another one), one line for each call."""
    channel = await open_channel(host, port, timeout_ms=60_000)
    lines: list[str] = []
    task = b""
    for step in STEPS if steps is None else steps:
        result = await call(channel, filled(step, task))
        if step[0] in ("CreateCopyTask", "CreateMoveTask") and isinstance(result, bytes):
            task, result = result, "a task"
        lines.append(f"{len(lines)} {step[0]}({', '.join(shown(step))}) -> {steady(result)!r}")
    channel.close()
    return lines
