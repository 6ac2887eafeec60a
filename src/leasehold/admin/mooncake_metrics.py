"""The metrics of the C++ master under its names, and its summary line, so that existing boards and alerts keep working.

Counters count since this worker started. Functions and features that are off count nothing: zero, as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from leasehold.admin.mooncake_state import Numbers, RuntimeState

VALUE_SIZE_BOUNDS: Final = (4_096, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864)

CALLS: Final = (
    "exist_key", "put_start", "put_end", "put_revoke", "get_replica_list", "get_replica_list_by_regex", "remove",
    "remove_by_regex", "remove_all", "mount_segment", "unmount_segment", "remount_segment", "mount_nof_segment",
    "unmount_nof_segment", "remount_nof_segment", "ping", "copy_start", "copy_end", "copy_revoke", "move_start",
    "move_end", "move_revoke", "evict_disk_replica", "create_copy_task", "create_move_task", "update_task",
    "query_task", "fetch_tasks",
)  # fmt: skip
BATCHES: Final = (
    "batch_exist_key", "batch_query_ip", "batch_replica_clear", "batch_get_replica_list", "batch_put_start",
    "batch_put_end", "batch_put_revoke",
)  # fmt: skip
_PROMOTIONS: Final = (
    "admitted", "completed", "completed_bytes", "expired", "failed", "cancelled", "rejected_frequency",
    "rejected_watermark", "rejected_cap", "candidate_recorded", "candidate_admitted", "candidate_admission_rejected",
    "candidate_expired_evaluated", "candidate_expired_unevaluated", "candidate_dropped_limit",
)  # fmt: skip

_GAUGES: Final = {
    "master_allocated_bytes": "bytes taken from segments, in units of 64, with quarantined space",
    "master_total_capacity_bytes": "bytes lent by all segments",
    "master_nof_allocated_bytes": "bytes taken from NVMe-oF segments, which are not offered",
    "master_total_nof_capacity_bytes": "bytes of NVMe-oF segments, which are not offered",
    "master_allocated_file_size_bytes": "bytes of objects on disk",
    "master_total_file_capacity_bytes": "bytes that clients offer on disk",
    "master_key_count": "objects, with unfinished puts",
    "master_active_clients": "storage clients that ping",
    "mem_cache_nums_": "readable objects in memory",
    "file_cache_nums_": "objects on disk",
    "master_promotion_in_flight": "promotions from disk that are being written",
    "ha_oplog_last_sequence_id": "number of the last journal record",
    "ha_oplog_applied_sequence_id": "number of the last journal record that this node has applied",
    "ha_oplog_standby_lag": "durable journal records that this node has not applied",
    "ha_oplog_pending_entries": "decided journal records that are not durable yet",
    "ha_pending_mutation_queue_size": "answers that wait until their record is durable",
    "ha_standby_state": "0 on the primary, else 1",
}
_COUNTERS: Final = {
    "master_put_start_alloc_failures_total": "started puts that were refused for lack of space",
    "master_put_start_partial_allocations_total": "puts with fewer replicas than requested: never, they are refused",
    "mem_cache_hit_nums_": "reads of objects in memory",
    "file_cache_hit_nums_": "reads of objects on disk",
    "mem_cache_hit_bytes_total": "bytes of objects in memory that were read",
    "file_cache_hit_bytes_total": "bytes of objects on disk that were read",
    "valid_get_nums_": "reads that found their object",
    "total_get_nums_": "reads",
    "master_successful_evictions_total": "rounds of eviction that evicted an object",
    "master_attempted_evictions_total": "rounds of eviction",
    "master_evicted_key_count": "evicted objects",
    "master_evicted_size_bytes": "bytes of evicted objects",
    "master_successful_evictions_mem": "rounds of eviction from memory that evicted an object",
    "master_attempted_evictions_mem": "rounds of eviction from memory",
    "master_evicted_key_count_mem": "objects evicted from memory",
    "master_evicted_size_bytes_mem": "bytes of objects evicted from memory",
    "master_successful_evictions_nof": "rounds of eviction from NVMe-oF, which is not offered",
    "master_attempted_evictions_nof": "rounds of eviction from NVMe-oF, which is not offered",
    "master_evicted_key_count_nof": "objects evicted from NVMe-oF, which is not offered",
    "master_evicted_size_bytes_nof": "bytes of objects evicted from NVMe-oF, which is not offered",
    "master_snapshot_success": "snapshots written",
    "master_snapshot_fail": "snapshots that could not be written",
    **{f"master_promotion_{name}_total": f"promotions from disk: {name.replace('_', ' ')}" for name in _PROMOTIONS},
}

# Metrics of the C++ master that are not here, and why.
ABSENT: Final = {
    "master_soft_pin_key_count": "soft pins end with time, and the index does not count them",
    "master_put_start_discard_cnt": "an unfinished put is ended by a record, in one step: there is no discarded state",
    "master_put_start_release_cnt": "as above",
    "master_put_start_discarded_staging_size": "as above; leasehold_quarantined_extents shows space that is waiting",
}


def render(numbers: Numbers) -> bytes:
    """The metrics in Prometheus' text format."""
    return "".join(f"{line}\n" for line in _lines(numbers)).encode()


def _lines(numbers: Numbers) -> Iterator[str]:
    plain = numbers.plain
    for name, text in _GAUGES.items():
        yield from _one(name, "gauge", text, plain.get(name, 0))
    for name, text in (*_COUNTERS.items(), *_call_counters()):
        yield from _one(name, "counter", text, plain.get(name, 0))
    for name, text, place in (
        ("segment_allocated_bytes", "bytes taken from the segments of a name", 1),
        ("segment_total_capacity_bytes", "bytes of the segments of a name", 2),
    ):
        yield from _head(name, "gauge", text)
        for row in numbers.segments:
            yield f'{name}{{segment="{_escaped(row[0])}"}} {row[place]}'
    name = "master_value_size_bytes"
    yield from _head(name, "histogram", "sizes of started puts")
    totals = list(accumulate(numbers.value_sizes))
    for bound, total in zip((*map(float, VALUE_SIZE_BOUNDS), None), totals, strict=True):
        yield f'{name}_bucket{{le="{"+Inf" if bound is None else f"{bound:.6f}"}"}} {total}'
    yield f"{name}_sum {numbers.value_size_sum}"
    yield f"{name}_count {totals[-1]}"


def _call_counters() -> Iterator[tuple[str, str]]:
    for stem in (*CALLS, *BATCHES):
        words = stem.replace("_", " ")
        yield f"master_{stem}_requests_total", f"requests: {words}"
        yield f"master_{stem}_failures_total", f"refused requests: {words}"
    for stem in BATCHES:
        words = stem.replace("_", " ")
        yield f"master_{stem}_partial_successes_total", f"requests of which a part was refused: {words}"
        yield f"master_{stem}_items_total", f"items in requests: {words}"
        yield f"master_{stem}_failed_items_total", f"refused items in requests: {words}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _one(name: str, kind: str, text: str, value: int) -> Iterator[str]:
    yield from _head(name, kind, text)
    yield f"{name} {value}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- the summary line ---

_SUMMARY_CALLS: Final = (
    ("PutStart", "put_start"), ("PutEnd", "put_end"), ("PutRevoke", "put_revoke"), ("Get", "get_replica_list"),
    ("Exist", "exist_key"), ("Del", "remove"), ("DelAll", "remove_all"), ("Ping", "ping"),
    ("CopyStart", "copy_start"), ("CopyEnd", "copy_end"), ("CopyRevoke", "copy_revoke"),
    ("MoveStart", "move_start"), ("MoveEnd", "move_end"), ("MoveRevoke", "move_revoke"),
    ("EvictDiskReplica", "evict_disk_replica"),
)  # fmt: skip
_SUMMARY_BATCHES: Final = (
    ("PutStart", "batch_put_start"), ("PutEnd", "batch_put_end"), ("PutRevoke", "batch_put_revoke"),
    ("Get", "batch_get_replica_list"), ("ExistKey", "batch_exist_key"), ("QueryIp", "batch_query_ip"),
    ("Clear", "batch_replica_clear"),
)  # fmt: skip
_SUMMARY_TASKS: Final = (
    ("CreateMoveTask", "create_move_task"), ("CreateCopyTask", "create_copy_task"), ("QueryTask", "query_task"),
    ("FetchTasks", "fetch_tasks"), ("MarkTaskToComplete", "update_task"),
)  # fmt: skip


class Summary:
    """The line of `/metrics/summary`. Its rates are those since the last window of ten seconds began."""

    WINDOW_S: Final = 10.0

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._before: Mapping[str, int] = {}

    def line(self, now_s: float, state: RuntimeState, numbers: Numbers) -> str:
        elapsed_s = max(now_s - self._since_s, 1e-3)
        plain, before = numbers.plain, self._before
        rates = {name: max(0, plain[name] - before.get(name, 0)) / elapsed_s for name in plain}
        if elapsed_s >= self.WINDOW_S:
            self._since_s, self._before = now_s, dict(plain)
        ready = "true" if state.service_ready else "false"
        leader = ""
        if state.leader_address is not None:
            leader = f", leader={state.leader_address}, view_version={state.view_version}"
        return (
            f"role={state.role}, state={state.ha_state}, service_ready={ready}, "
            f"master={{{_master(plain, rates)}}}, ha={{{_ha(plain)}}}{leader}"
        )


def _master(plain: Mapping[str, int], rates: Mapping[str, float]) -> str:
    def rate(stem: str, counter: str) -> float:
        return rates.get(f"master_{stem}_{counter}_total", 0.0)

    def pair(stem: str, failed: str = "failures", total: str = "requests") -> str:
        return f"{rate(stem, total) - rate(stem, failed):.2f}/{rate(stem, total):.2f}"

    def batch(stem: str) -> str:
        partial = rate(stem, "partial_successes")
        whole = rate(stem, "requests") - rate(stem, "failures") - partial
        return (
            f"(Req={whole:.2f}/{partial:.2f}/{rate(stem, 'requests'):.2f}, Item={pair(stem, 'failed_items', 'items')})"
        )

    def value(name: str) -> int:
        return plain.get(name, 0)

    used, capacity = value("master_allocated_bytes"), value("master_total_capacity_bytes")
    memory = f"Mem Storage: {_bytes(used)} / {_bytes(capacity)}" + (f" ({used / capacity:.1%})" if capacity else "")
    disk = (value("master_allocated_file_size_bytes"), value("master_total_file_capacity_bytes"))
    evictions = [
        f"Success/Attempts={value(f'master_successful_evictions_{kind}')}/{value(f'master_attempted_evictions_{kind}')}"
        for kind in ("total", "mem", "nof")
    ]
    evicted = [
        f"keys={value(f'master_evicted_key_count{kind}')}, size={_bytes(value(f'master_evicted_size_bytes{kind}'))}"
        for kind in ("", "_mem", "_nof")
    ]
    promoted = ", ".join(
        f"{name}={value(f'master_promotion_{name}_total')}"
        for name in ("admitted", "completed", "failed", "cancelled", "expired")
    )
    rejected = "/".join(
        str(value(f"master_promotion_rejected_{name}_total")) for name in ("frequency", "watermark", "cap")
    )
    promotion = (
        f"Promotion: in_flight={value('master_promotion_in_flight')}, {promoted}, "
        f"bytes={_bytes(value('master_promotion_completed_bytes_total'))}, rejected(freq/wm/cap)={rejected}"
    )
    return " | ".join(
        [
            memory,
            "NVMe-oF SSD: 0 B / 0 B",
            f"SSD Storage: {_bytes(disk[0])} / {_bytes(disk[1])}",
            f"Keys: {value('master_key_count')}",
            f"Clients: {value('master_active_clients')}",
            "Requests (Success/Total per sec): " + ", ".join(f"{name}={pair(stem)}" for name, stem in _SUMMARY_CALLS),
            "Batch Requests (per sec, Req=Success/PartialSuccess/Total, Item=Success/Total): "
            + ", ".join(
                [
                    *(f"{name}:{batch(stem)}" for name, stem in _SUMMARY_BATCHES),
                    *(f"{name}:(Req={pair(stem)})" for name, stem in _SUMMARY_TASKS),
                ]
            ),
            f"Eviction: {evictions[0]}, AllocFail={value('master_put_start_alloc_failures_total')}, PartialAlloc=0, "
            + evicted[0],
            f"Mem Eviction: {evictions[1]}, {evicted[1]}",
            f"NoF Eviction: {evictions[2]}, {evicted[2]}",
            promotion,
            f"Snapshots: Success={value('master_snapshot_success')}, Fail={value('master_snapshot_fail')}",
        ]
    )


def _ha(plain: Mapping[str, int]) -> str:
    return (
        f"HA Metrics Summary: last_seq={plain.get('ha_oplog_last_sequence_id', 0)}, "
        f"applied_seq={plain.get('ha_oplog_applied_sequence_id', 0)}, lag={plain.get('ha_oplog_standby_lag', 0)}, "
        f"pending={plain.get('ha_oplog_pending_entries', 0)}, state={plain.get('ha_standby_state', 0)}"
    )


def _bytes(count: int) -> str:
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "KB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.2f} {unit}"
    return f"{count} B"
