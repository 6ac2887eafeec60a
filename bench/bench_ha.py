"""Masters with a standby on one real etcd, with the real client, taking turns: rates, CPU, writes, and keys lost.

`C++` is `mooncake_master` with its op log, which acknowledges a write before anything is durable. `sync`, `buffered`
(on disk) and `async` are two `leasehold node`s with that durability. Each case is measured on all four, one after the
other; after the last case of a round every leader is killed with SIGKILL while eight threads write. Values have 1 KiB.
Rates count successful calls; the C++ master refuses removes (-1401) while its op log has too many unwritten entries.
Costs per item include the 0.1 s after a measurement, without the usage of idle masters. `sync` must lose no key.
`LEASEHOLD_BENCH_SECONDS` is the length of one measurement, `LEASEHOLD_BENCH_ROUNDS` the number of rounds.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from bench.fenced_write import FencedWrites
from bench.ha_masters import Load, Master, Ours, Peer
from bench.ha_tables import Kill, Sample, print_tables
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.mooncake import why_missing

SECONDS = float(os.environ.get("LEASEHOLD_BENCH_SECONDS", "0.35"))
ROUNDS = int(os.environ.get("LEASEHOLD_BENCH_ROUNDS", "3"))
DURABILITIES = ("sync", "buffered", "async")
BURST_S = 1.0
IDLE_S = 2.0
DRAIN_S = 0.1  # writes to etcd that follow an answer within this time are counted with it
FENCED_WRITES = 60  # a round
COUNTERS = {
    "writes": re.compile(rb"^etcd_server_proposals_committed_total (\S+)", re.MULTILINE),
    "bytes": re.compile(rb"^etcd_disk_wal_write_bytes_total (\S+)", re.MULTILINE),
}


class Case(Struct, frozen=True):
    """One row: a method of the load, items in a call, threads, and the keys that it needs to remove."""

    name: str
    method: str
    size: int = 1
    threads: int = 1
    stock: int = 0

    def __str__(self) -> str:
        size = f" {self.size}" if self.size > 1 else ""
        return f"{self.name}{size}, {self.threads} thread{'s' if self.threads > 1 else ''}"


CASES = [
    Case(name, method, size, threads, stock * threads)
    for name, method, size, stock in (
        ("put", "put", 1, 0),
        ("put_batch", "put_batch", 10, 0),
        ("put_batch", "put_batch", 100, 0),
        ("put_batch", "put_batch", 500, 0),
        ("upsert", "upsert", 1, 0),
        ("remove", "remove", 1, 2_000),
        ("batch remove", "batch_remove", 100, 10_000),
        ("exist", "exist", 1, 0),
        ("get", "get", 1, 0),
    )
    for threads in (1, 8)
]


class Usage(Struct, frozen=True):
    """Counters of etcd."""

    at_s: float
    cpu_s: float
    writes: float
    bytes: float


class Comparison:
    """All masters, their loads, and the samples so far."""

    def __init__(self, etcd: EtcdCluster, masters: dict[str, Master], loads: dict[str, Load]) -> None:
        self._etcd, self._masters, self._loads = etcd, masters, loads
        self.samples: dict[tuple[str, str], list[Sample]] = {}  # (case, master)
        self.kills: dict[str, list[Kill]] = {}
        self.fenced_s: list[float] = []
        self._idle = self._idle_usage()

    def round(self, fenced: FencedWrites) -> None:
        for load in self._loads.values():
            load.stock(0)
        for case in CASES:
            for name in self._masters:
                self.samples.setdefault((str(case), name), []).append(self._measure(name, case))
        self.fenced_s += fenced.measure(FENCED_WRITES)
        for name in self._masters:
            self.kills.setdefault(name, []).append(self._kill(name))
        for master in self._masters.values():
            master.revive()

    def _measure(self, name: str, case: Case) -> Sample:
        load, master = self._loads[name], self._masters[name]
        if case.stock:
            load.stock(case.stock)
        before, worker_s = self._usage(), master.worker_cpu_s()
        found = load.measure(case.method, case.size, case.threads, SECONDS)
        time.sleep(DRAIN_S)
        worker_s = master.worker_cpu_s() - worker_s
        after = self._usage()
        items, idle = max(found.items, 1), self._idle
        span_s = after.at_s - before.at_s
        return Sample(
            found.items / found.seconds,
            worker_s / items * 1e6,
            max(0.0, after.cpu_s - before.cpu_s - idle.cpu_s * span_s) / items * 1e6,
            max(0.0, after.writes - before.writes - idle.writes * span_s) / items,
            max(0.0, after.bytes - before.bytes - idle.bytes * span_s) / items,
            found.failed,
        )

    def _kill(self, name: str) -> Kill:
        """Kill the leader under load, and count acknowledged keys that its successor does not have."""
        load, master = self._loads[name], self._masters[name]
        load.burst()
        time.sleep(BURST_S)
        killed_s = time.monotonic()
        master.kill_leader()
        load.stop()
        kept = load.lost()
        return Kill(kept.acknowledged, kept.lost, kept.answered_s - killed_s)

    def _usage(self) -> Usage:
        node = self._etcd.nodes[0]
        text = node.http("/metrics") or b""
        found = {name: float(match[1]) for name, pattern in COUNTERS.items() if (match := pattern.search(text))}
        return Usage(time.monotonic(), node.cpu_s(), found["writes"], found["bytes"])

    def _idle_usage(self) -> Usage:
        """What all idle masters together cost etcd in a second: it is subtracted from every measurement."""
        before = self._usage()
        time.sleep(IDLE_S)
        after = self._usage()
        span_s = after.at_s - before.at_s
        return Usage(
            0.0,
            (after.cpu_s - before.cpu_s) / span_s,
            (after.writes - before.writes) / span_s,
            (after.bytes - before.bytes) / span_s,
        )


def main() -> None:
    if (reason := why_missing()) is not None:
        print(f"NOT MEASURED: {reason}")
        return
    with ExitStack() as stack:
        etcd = stack.enter_context(EtcdCluster(1))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leasehold-bench-")))
        masters: dict[str, Master] = {"C++": Peer(etcd)}
        masters |= {durability: Ours(etcd, durability, folder) for durability in DURABILITIES}
        loads = {}
        for name, master in masters.items():
            stack.enter_context(master)
            loads[name] = Load(etcd, master.cluster)
            stack.callback(loads[name].close)
        comparison = Comparison(etcd, masters, loads)
        fenced = stack.enter_context(FencedWrites(etcd.nodes[0].endpoint))
        for _ in range(ROUNDS):
            comparison.round(fenced)
    fenced_ms = statistics.median(comparison.fenced_s) * 1e3
    print_tables(list(map(str, CASES)), list(masters), comparison.samples, comparison.kills, fenced_ms)


if __name__ == "__main__":
    main()
