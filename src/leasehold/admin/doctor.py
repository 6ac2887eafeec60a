"""The checks of `leasehold doctor`. Pure: `cli/doctor.py` gathers a `ClusterCheckup`, and `diagnose` judges it.

Each check yields one `Worry` for each problem: what was found, why it matters, and what to type. A healthy cluster has
none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from leasehold.admin.checkup import ClockReading, NodeCheckup, ShownConfig, different_settings
from leasehold.admin.status import ClusterStatus, NodeStatus
from leasehold.admin.worries import Worry, cluster_worries, node_worries
from leasehold.base.units import format_bytes

CERTIFICATE_DAYS: Final = 14
DISK_FREE_SHARE: Final = 0.10
DISK_FREE_BYTES: Final = 10 << 30  # a tenth of a large disk is enough for long
DISK_SLOW_MS: Final = 1_000  # a small durable write
STORE_SLOW_SHARE: Final = 0.1  # of `store_timeout`
ETCD_DATABASE_BYTES: Final = int(1.6 * (1 << 30))  # etcd stops accepting writes at 2 GiB, unless configured otherwise
FILES_SHARE: Final = 0.8
WALL_US: Final = 10_000_000
_DAY_S: Final = 86_400
_NO_SPACE: Final = "NOSPACE"


class ClockSample(Struct, frozen=True):
    """A node's clocks, read between two moments of the doctor's own clock."""

    sent_us: int
    received_us: int
    reading: ClockReading

    @property
    def round_trip_us(self) -> int:
        return self.received_us - self.sent_us


class ExaminedNode(Struct, frozen=True, kw_only=True):
    """Everything that was found out about one registered node. Without an answer, `problem` says why."""

    name: str
    admin: str
    problem: str = ""
    status: NodeStatus | None = None
    checkup: NodeCheckup | None = None
    config: ShownConfig | None = None
    clocks: tuple[ClockSample, ...] = ()  # the first and the last
    certificate_end_s: int = 0  # of its admin port; 0: it uses no TLS


class ClusterCheckup(Struct, frozen=True, kw_only=True):
    """The gathered view. `problem`: why the state of the cluster in the store cannot be read."""

    now_s: int
    nodes: tuple[ExaminedNode, ...]
    cluster: ClusterStatus | None = None
    problem: str = ""

    def checkups(self) -> Iterator[tuple[str, NodeCheckup]]:
        for node in self.nodes:
            if node.checkup is not None:
                yield node.name, node.checkup


def diagnose(found: ClusterCheckup) -> list[Worry]:
    """Every problem, the serious ones first."""
    worries = [worry for check in CHECKS for worry in check(found)]
    return sorted(worries, key=lambda worry: not worry.serious)


def _reported(found: ClusterCheckup) -> Iterator[Worry]:
    """The problems that `leasehold status` lists too."""
    statuses = [node.status for node in found.nodes if node.status is not None]
    if found.cluster is not None:
        standbys = sum(status.ready and not status.may_serve for status in statuses)
        yield from cluster_worries(
            found.cluster, standbys, max((status.feature_level for status in statuses), default=0)
        )
    for status in statuses:
        yield from node_worries(status)


def _unanswered(found: ClusterCheckup) -> Iterator[Worry]:
    for node in found.nodes:
        if node.problem:
            yield Worry(
                f"{node.name} is registered, but does not answer at {node.admin} ({node.problem})",
                f"check that it runs and is reachable from here: curl http://{node.admin}/health",
                check="node-unreachable",
                why="a node that cannot be reached may not take over, and takes no orders",
            )


def _leader(found: ClusterCheckup) -> Iterator[Worry]:
    cluster = found.cluster
    if cluster is None or not cluster.leader:
        return
    if not any(peer.leads for peer in cluster.nodes):
        yield Worry(
            f"the leader key names '{cluster.leader}' (epoch {cluster.epoch}), which is not a live node",
            f"find its writer, then delete the key: etcdctl del {cluster.leader_key}",
            serious=True,
            check="leader-key",
            why="as long as the key exists no node campaigns, so calls wait",
        )


def _store(found: ClusterCheckup) -> Iterator[Worry]:
    if found.problem and not any(checkup.store.problem for _, checkup in found.checkups()):
        yield Worry(
            f"the state of the cluster cannot be read: {found.problem}",
            "see the log of that node",
            serious=True,
            check="store-unreachable",
            why="without the store no write is acknowledged and no node takes over",
        )
    for name, checkup in found.checkups():
        store = checkup.store
        if store.problem:
            yield Worry(
                f"{name} cannot use its coordination store: {store.problem}",
                "check the store and the network: etcdctl endpoint health --cluster",
                serious=True,
                check="store-unreachable",
                why="without the store no write is acknowledged and no node takes over",
            )
            continue
        read_ms = sorted(store.read_ms)[len(store.read_ms) // 2] if store.read_ms else 0
        if read_ms > STORE_SLOW_SHARE * checkup.store_timeout_ms:
            yield Worry(
                f"the store takes {read_ms} ms to answer {name} (99 % of its commits: {checkup.commit_p99_ms} ms)",
                "give etcd a faster disk and network: etcdctl check perf; "
                "curl -s http://ETCD:2379/metrics | grep wal_fsync",
                check="store-slow",
                why="every write of a client waits for the store, and a leader that cannot write in time is replaced",
            )


def _store_space(found: ClusterCheckup) -> Iterator[Worry]:
    """The alarm belongs to the whole store, so it is reported once."""
    for _, checkup in found.checkups():
        store = checkup.store
        if alarms := [alarm.strip() for alarm in store.alarms if alarm.strip()]:
            space = any(_NO_SPACE in alarm for alarm in alarms)
            yield Worry(
                f"the store has an alarm: {', '.join(alarms)}",
                "etcdctl compact REVISION; etcdctl defrag --cluster; etcdctl alarm disarm"
                if space
                else "see etcd's documentation of this alarm: etcdctl alarm list",
                serious=True,
                check="store-alarm",
                why="etcd refuses every write until the alarm is disarmed, so nothing can be put",
            )
            return
        if store.database_bytes > ETCD_DATABASE_BYTES:
            yield Worry(
                f"the store's database has {format_bytes(store.database_bytes)}",
                "set --coord-compact on the nodes, or etcd's --auto-compaction-retention; then: etcdctl defrag",
                check="store-size",
                why="etcd refuses every write at its limit, 2 GiB unless --quota-backend-bytes is set",
            )
            return


def _disks(found: ClusterCheckup) -> Iterator[Worry]:
    for name, checkup in found.checkups():
        disk = checkup.disk
        if disk.problem:
            yield Worry(
                f"{name} cannot write to its data directory '{disk.folder}' ({disk.problem})",
                f"on its host: ls -ld {disk.folder}; df -h {disk.folder}; then free space, or restore the directory "
                f"and type: leasehold nodes restart {name}",
                serious=True,
                check="disk-unwritable",
                why="without snapshots the journal grows until it is full, and a restart takes longer",
            )
            continue
        if disk.free_bytes < min(DISK_FREE_SHARE * disk.total_bytes, DISK_FREE_BYTES):
            yield Worry(
                f"{name} has {format_bytes(disk.free_bytes)} of {format_bytes(disk.total_bytes)} left on the disk of "
                f"'{disk.folder}'",
                f"on its host: du -xh {disk.folder} | sort -h | tail; free space, or set --data-dir",
                check="disk-full",
                why="a full disk takes no snapshots, and with durability `buffered` no writes",
            )
        if disk.write_ms and sorted(disk.write_ms)[len(disk.write_ms) // 2] > DISK_SLOW_MS:
            yield Worry(
                f"{name}'s disk needs {sorted(disk.write_ms)[len(disk.write_ms) // 2]} ms for a small durable write",
                "on its host: iostat -x 1; move --data-dir to a faster disk",
                check="disk-slow",
                why="snapshots take long, and with durability `buffered` every write waits for this disk",
            )


def _files(found: ClusterCheckup) -> Iterator[Worry]:
    for name, checkup in found.checkups():
        if checkup.files_open > FILES_SHARE * checkup.files_max or checkup.files_max < checkup.files_needed:
            yield Worry(
                f"{name} may open {checkup.files_max} file descriptors ({checkup.files_open} are open), and its "
                f"settings allow connections for {checkup.files_needed}",
                f"raise LimitNOFILE of its service (or ulimit -n) to {checkup.files_needed} and start it again, or "
                "lower --connections-max",
                check="file-descriptors",
                why="without a free descriptor new clients are refused, and connections end with a dying worker",
            )


def _versions(found: ClusterCheckup) -> Iterator[Worry]:
    versions = {node.name: node.status.version for node in found.nodes if node.status is not None}
    if len(set(versions.values())) > 1:
        shown = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        yield Worry(
            f"the nodes run different releases ({shown})",
            "finish the upgrade, one node after the other (docs/upgrade.md)",
            check="versions",
            why="mixed releases are for the time of an upgrade: new features stay off, and each failover changes the "
            "behaviour",
        )


def _settings(found: ClusterCheckup) -> Iterator[Worry]:
    shared = {node.name: node.config.shared() for node in found.nodes if node.config is not None}
    for name, values in different_settings(shared):
        shown = ", ".join(f"{node} {value or '(empty)'}" for node, value in values.items())
        yield Worry(
            f"the nodes have different values of {name} ({shown})",
            "write one value into the settings of all nodes and start them again, one after the other; to compare: "
            "leasehold config diff",
            check="settings",
            why="a failover to a node with other settings changes what clients rely on",
        )


def _rules(found: ClusterCheckup) -> Iterator[Worry]:
    for name, checkup in found.checkups():
        for rule in checkup.risky:
            yield Worry(
                f"the lease times of {name} are risky: {rule}",
                "leasehold plan --help computes good times; then change leader_ttl and flush_interval on all nodes",
                check="lease-times",
                why="leadership is lost without a failure, which is an outage each time",
            )


def _clocks(found: ClusterCheckup) -> Iterator[Worry]:
    nodes = [node for node in found.nodes if len(node.clocks) == 2]
    for at, one in enumerate(nodes):
        for other in nodes[at + 1 :]:
            yield from _two_clocks(one, other)


def _two_clocks(one: ExaminedNode, other: ExaminedNode) -> Iterator[Worry]:
    """Compare rates and wall clocks. A round trip makes a reading uncertain, which counts in favour of the clocks."""
    allowed = min((node.checkup.drift for node in (one, other) if node.checkup is not None), default=0.0)
    (rate, rate_error), (other_rate, other_error) = _rate(one), _rate(other)
    apart = abs(rate - other_rate) - rate_error - other_error
    if allowed and apart > allowed:
        yield Worry(
            f"the clocks of {one.name} and {other.name} tick at different rates: at least {apart:.1%} apart, and the "
            f"setting drift allows {allowed:.1%}",
            "on both hosts: chronyc tracking; cat /sys/devices/system/clocksource/*/current_clocksource; move the node "
            "off a host with a bad clock",
            serious=True,
            check="clock-drift",
            why="leases are counted by two clocks: beyond the allowed drift two nodes may both answer (P4)",
        )
    last, other_last = one.clocks[1], other.clocks[1]
    offset_us = (last.reading.wall_us - last.received_us) - (other_last.reading.wall_us - other_last.received_us)
    if abs(offset_us) - last.round_trip_us - other_last.round_trip_us > WALL_US:
        yield Worry(
            f"the wall clocks of {one.name} and {other.name} are {abs(offset_us) // 1_000_000} s apart",
            "on both hosts: timedatectl; set up time synchronisation (chrony)",
            check="wall-clock",
            why="no decision depends on it, but times in the history and in logs mislead, and passes of the dashboard "
            "are refused",
        )


def _rate(node: ExaminedNode) -> tuple[float, float]:
    """How fast a node's clock ticks beside the doctor's own, and how wrong that may be."""
    first, last = node.clocks
    own_us = max(1, last.received_us - first.received_us)
    rate = (last.reading.boot_us - first.reading.boot_us) / own_us
    return rate, (first.round_trip_us + last.round_trip_us) / own_us


def _certificates(found: ClusterCheckup) -> Iterator[Worry]:
    ends = {f"{node.name}'s admin port {node.admin}": node.certificate_end_s for node in found.nodes}
    for _, checkup in found.checkups():
        ends |= {f"the store's endpoint {at}": end_s for at, end_s in checkup.store.certificate_ends_s.items()}
        ends |= {f"the storage host {host.name}": host.certificate_end_s for host in checkup.hosts}
    for where, end_s in ends.items():
        left_s = end_s - found.now_s
        if not end_s or left_s > CERTIFICATE_DAYS * _DAY_S:
            continue
        when = datetime.fromtimestamp(end_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        yield Worry(
            f"the certificate of {where} {'expired at' if left_s < 0 else 'expires at'} {when}",
            "issue a new one over the old file, which is read again within a second: leasehold certs DIRECTORY "
            "--server NAME=HOST",
            serious=left_s < 0,
            check="certificate",
            why="after that time every client and node that verifies it is refused",
        )


def _storage_hosts(found: ClusterCheckup) -> Iterator[Worry]:
    for name, checkup in found.checkups():
        for host in checkup.hosts:
            if host.problem:
                yield Worry(
                    f"the storage host {host.name} at {host.endpoint} refuses clients, as seen from {name} "
                    f"({host.problem})",
                    f"check it and the network (its limit is --connections-max), or empty it: leasehold hosts drain "
                    f"{host.name}",
                    serious=True,
                    check="storage-host",
                    why="puts that are placed there fail, and objects that are there only cannot be read",
                )


CHECKS: Final[tuple[Callable[[ClusterCheckup], Iterator[Worry]], ...]] = (
    _leader, _reported, _unanswered, _store, _store_space, _disks, _files, _versions, _settings, _rules, _clocks,
    _certificates, _storage_hosts,
)  # fmt: skip
