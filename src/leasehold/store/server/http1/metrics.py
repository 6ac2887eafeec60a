"""`/metrics` of the store: etcd's names for what etcd has too, ours for the rest."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from leasehold.store.engine import Engine
from leasehold.store.server.clients import Clients
from leasehold.store.status import ETCD_VERSION

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def metrics_text(engine: Engine, clients: Clients) -> str:
    """The metrics in Prometheus' text format."""
    with engine.lock:
        store, keys = engine.store, engine.store.keys
        gauges = [
            ("etcd_server_has_leader", "Whether a leader exists.", 1),
            ("etcd_server_is_leader", "Whether this member is the leader.", 1),
            ("etcd_server_quota_backend_bytes", "The limit for existing keys and values.", store.quota_bytes),
            ("etcd_mvcc_db_total_size_in_bytes", "Keys and values with their history.", keys.total_bytes),
            ("etcd_mvcc_db_total_size_in_use_in_bytes", "Existing keys and values.", keys.live_bytes),
            ("etcd_debugging_mvcc_keys_total", "The number of keys.", len(keys)),
            ("etcd_debugging_mvcc_current_revision", "The revision.", keys.revision),
            ("etcd_debugging_mvcc_compact_revision", "The compacted revision.", keys.compact_revision),
            ("leasehold_store_leases", "The number of leases.", len(store.leases_open)),
            ("leasehold_store_alarms", "Alarms that clients have activated.", len(store.alarms)),
            ("leasehold_store_full", "Whether the quota is reached.", int(store.over_quota)),
        ]
    gauges += [
        ("leasehold_store_connections", "Open connections of clients.", len(clients)),
        ("leasehold_store_connections_max", "The limit for connections.", clients.connections_max),
        ("leasehold_store_connections_refused", "Connections beyond the limit and its reserve.", clients.refused),
        ("leasehold_store_busy_connections", "Connections with calls.", clients.calls),
        ("leasehold_store_traffic_bytes", "Unfinished requests and unsent answers.", clients.memory.taken_bytes),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", _resident_bytes()),
        ("process_open_fds", "Number of open file descriptors.", len(os.listdir("/proc/self/fd"))),
    ]
    lines = [_gauge(name, meaning, value) for name, meaning, value in gauges]
    used = resource.getrusage(resource.RUSAGE_SELF)
    lines.append(
        "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n"
        f"# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total {used.ru_utime + used.ru_stime:.3f}\n"
        "# HELP etcd_server_version The etcd release whose API is served.\n"
        f'# TYPE etcd_server_version gauge\netcd_server_version{{server_version="{ETCD_VERSION}"}} 1\n'
    )
    return "".join(lines)


def _gauge(name: str, meaning: str, value: float) -> str:
    return f"# HELP {name} {meaning}\n# TYPE {name} gauge\n{name} {value}\n"


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
