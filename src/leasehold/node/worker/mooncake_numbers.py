"""The counters of a running node under the names of the C++ master's metrics.

Its metrics put several functions under one stem: an upsert counts as a put, `BatchRemove` as that many removes.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from leasehold.admin.mooncake_state import Numbers
from leasehold.base.codes import Code
from leasehold.ha.effects import Role
from leasehold.index.model import Segment
from leasehold.node.worker.run import RunningNode

_CALLS: Final = {
    "ExistKey": "exist_key",
    "PutStart": "put_start",
    "UpsertStart": "put_start",
    "PutEnd": "put_end",
    "UpsertEnd": "put_end",
    "PutRevoke": "put_revoke",
    "UpsertRevoke": "put_revoke",
    "GetReplicaList": "get_replica_list",
    "GetReplicaListByRegex": "get_replica_list_by_regex",
    "Remove": "remove",
    "RemoveByRegex": "remove_by_regex",
    "RemoveAll": "remove_all",
    "MountSegment": "mount_segment",
    "UnmountSegment": "unmount_segment",
    "GracefulUnmountSegment": "unmount_segment",
    "ReMountSegment": "remount_segment",
    "MountNoFSegment": "mount_nof_segment",
    "UnmountNoFSegment": "unmount_nof_segment",
    "ReMountNoFSegment": "remount_nof_segment",
    "Ping": "ping",
    "CopyStart": "copy_start",
    "DynamicReplicaCopyStart": "copy_start",
    "CopyEnd": "copy_end",
    "DynamicReplicaCopyEnd": "copy_end",
    "CopyRevoke": "copy_revoke",
    "DynamicReplicaCopyRevoke": "copy_revoke",
    "MoveStart": "move_start",
    "MoveEnd": "move_end",
    "MoveRevoke": "move_revoke",
    "EvictDiskReplica": "evict_disk_replica",
    "CreateCopyTask": "create_copy_task",
    "CreateMoveTask": "create_move_task",
    "MarkTaskToComplete": "update_task",
    "QueryTask": "query_task",
    "FetchTasks": "fetch_tasks",
}
_BATCHES: Final = {
    "BatchExistKey": "batch_exist_key",
    "BatchQueryIp": "batch_query_ip",
    "BatchReplicaClear": "batch_replica_clear",
    "BatchGetReplicaList": "batch_get_replica_list",
    "BatchPutStart": "batch_put_start",
    "BatchUpsertStart": "batch_put_start",
    "BatchPutEnd": "batch_put_end",
    "BatchUpsertEnd": "batch_put_end",
    "BatchPutRevoke": "batch_put_revoke",
    "BatchUpsertRevoke": "batch_put_revoke",
}
_STARTS: Final = ("PutStart", "UpsertStart", "BatchPutStart", "BatchUpsertStart")


def numbers_of(node: RunningNode) -> Numbers:
    """All metrics, as of now."""
    counts = node.call_counts
    plain = {**_gauges(node), **_evictions(node), **_calls(node)}
    return Numbers(plain, _segments(node), tuple(counts.sizes()), counts.size_sum)


def used_bytes(segment: Segment) -> int:
    """The bytes that are taken from a segment, with quarantined space."""
    return segment.spec.size - segment.allocator.free_bytes


def _gauges(node: RunningNode) -> dict[str, int]:
    machine, index, counts = node.machine, node.machine.index, node.call_counts
    return {
        "master_allocated_bytes": index.space.used_bytes,
        "master_total_capacity_bytes": index.space.total_bytes,
        "master_key_count": index.catalog.object_count,
        "master_active_clients": len(index.owners.clients),
        "mem_cache_nums_": index.catalog.readable_count,
        "mem_cache_hit_nums_": counts.hits,
        "mem_cache_hit_bytes_total": counts.hit_bytes,
        "valid_get_nums_": counts.hits,
        "total_get_nums_": counts.gets,
        "master_snapshot_success": node.keeping.snapshots.written,
        "master_snapshot_fail": node.keeping.snapshots.failures,
        "ha_oplog_last_sequence_id": index.log.last_n,
        "ha_oplog_applied_sequence_id": index.log.last_n,
        "ha_oplog_standby_lag": max(0, machine.lag),
        "ha_oplog_pending_entries": max(0, index.log.last_n - machine.durable_n),
        "ha_pending_mutation_queue_size": machine.outbox.waiting,
        "ha_standby_state": int(machine.role is not Role.PRIMARY),
    }


def _evictions(node: RunningNode) -> dict[str, int]:
    """All evictions are from memory."""
    eviction, found = node.machine.index.eviction, {}
    for end in ("_total", "_mem"):
        found[f"master_attempted_evictions{end}"] = eviction.rounds
        found[f"master_successful_evictions{end}"] = eviction.rounds - eviction.rounds_without_effect
    for end in ("", "_mem"):
        found[f"master_evicted_key_count{end}"] = eviction.evicted_count
        found[f"master_evicted_size_bytes{end}"] = eviction.evicted_bytes
    return found


def _calls(node: RunningNode) -> dict[str, int]:
    found: Counter[str] = Counter()
    for function, durations in node.calls.durations().items():
        if (stem := _CALLS.get(function)) is not None:
            found[f"master_{stem}_requests_total"] += durations.count
    for (function, reason), count in node.calls.failures().items():
        if (stem := _CALLS.get(function)) is not None:
            found[f"master_{stem}_failures_total"] += count
        if function in _STARTS and reason == Code.NO_SPACE.name:
            found["master_put_start_alloc_failures_total"] += count
    for function, batches in node.call_counts.batches.items():
        if function == "BatchRemove":
            found["master_remove_requests_total"] += batches.items
            found["master_remove_failures_total"] += batches.failed_items
        elif function == "BatchEvictDiskReplica":
            found["master_evict_disk_replica_requests_total"] += batches.requests
            found["master_evict_disk_replica_failures_total"] += batches.failures + batches.partial_successes
        elif (stem := _BATCHES.get(function)) is not None:
            found[f"master_{stem}_requests_total"] += batches.requests
            found[f"master_{stem}_failures_total"] += batches.failures
            found[f"master_{stem}_partial_successes_total"] += batches.partial_successes
            found[f"master_{stem}_items_total"] += batches.items
            found[f"master_{stem}_failed_items_total"] += batches.failed_items
    return dict(found)


def _segments(node: RunningNode) -> tuple[tuple[str, int, int], ...]:
    sums: dict[str, tuple[int, int]] = {}
    for segment in node.machine.index.space.segments.values():
        used, capacity = sums.get(segment.spec.name, (0, 0))
        sums[segment.spec.name] = used + used_bytes(segment), capacity + segment.spec.size
    return tuple((name, used, capacity) for name, (used, capacity) in sums.items())
