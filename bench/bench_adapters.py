"""The adapters beside what their users have today: locks and caches, on the same servers, in one run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bench import adapters_locks as locks
from bench.rows import PER_SECOND, record
from leasehold.testing.cache import CacheProcess
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.process import cpu_s
from leasehold.testing.redis import RedisProcess
from leasehold.testing.store import StoreProcess

VERSIONS = ("aiocache", "coredis", "django", "django-redis", "etcd3gw", "redis", "tooz")
RUNNING_S = 2.0
WRITE_EVERY_S = 0.05
PAUSES = 10
PAUSE_S = 0.2
CALM_S = 0.3  # before each pause: the reader has the value in its memory again
TERM = "1s"


class Worker:
    """A process of `adapters_worker`."""

    def __init__(self, kind: str, address: str, role: str) -> None:
        command = [sys.executable, "-m", "bench.adapters_worker", kind, address, role]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("ready")

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended: {self.process.args!r}")
        return line.strip()

    def expect(self, text: str) -> None:
        if (line := self.line()) != text:
            raise RuntimeError(f"the worker printed {line!r} instead of {text!r}")

    def ask(self, text: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self.line()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class CacheFigures(Struct, frozen=True):
    """Reads a second and CPU microseconds per read, stale reads of a running and of a paused reader, a write in ms."""

    reads_per_s: float
    cpu_us: float
    stale_running: int
    stale_paused: int
    write_ms: float
    paused_write_ms: float


class Report(Struct, frozen=True):
    """The reads of one reader."""

    reads: int
    seconds: float
    cpu_s: float
    starts: dict[str, list[int]]


def stale(report: Report, acknowledged_ns: dict[int, int]) -> int:
    """Reads that began after a newer value was acknowledged, and returned an older one."""
    return sum(
        sum(start > acknowledged_ns[int(value) + 1] for start in starts)
        for value, starts in report.starts.items()
        if int(value) + 1 in acknowledged_ns
    )


def measure_cache(kind: str, address: str, server_pid: int) -> CacheFigures:
    writer = Worker(kind, address, "write")
    writer.ask("0")
    running = _phase(kind, address, writer, server_pid, pause=False)
    paused = _phase(kind, address, writer, server_pid, pause=True)
    writer.close()
    report, acknowledged, server_s, write_ms = running
    cpu_us = (report.cpu_s + server_s) / report.reads * 1e6
    return CacheFigures(
        report.reads / report.seconds,
        cpu_us,
        stale(report, acknowledged),
        stale(paused[0], paused[1]),
        write_ms,
        paused[3],
    )


def _phase(
    kind: str, address: str, writer: Worker, server_pid: int, *, pause: bool
) -> tuple[Report, dict[int, int], float, float]:
    reader = Worker(kind, address, "read")
    acknowledged: dict[int, int] = {}
    used_s, end_s, number = cpu_s(server_pid), time.monotonic() + RUNNING_S, 0
    waited_s: list[float] = []
    time.sleep(CALM_S)
    while (number < PAUSES) if pause else (time.monotonic() < end_s):
        number += 1
        if pause:
            os.kill(reader.process.pid, signal.SIGSTOP)
        began_s = time.monotonic()
        acknowledged[number] = int(writer.ask(str(number)))
        waited_s.append(time.monotonic() - began_s)
        if pause:
            time.sleep(PAUSE_S)
            os.kill(reader.process.pid, signal.SIGCONT)
        time.sleep(CALM_S if pause else WRITE_EVERY_S)
    server_s = cpu_s(server_pid) - used_s
    report = json.loads(reader.ask("stop"))
    reader.close()
    writer.ask("0")
    write_ms = sorted(waited_s)[len(waited_s) // 2] * 1e3
    return (
        Report(report["reads"], report["seconds"], report["cpu_s"], report["starts"]),
        acknowledged,
        server_s,
        write_ms,
    )


def bench_locks(folder: Path) -> None:
    print(f"  {'locks':<40} {'alone/s':>9} {'CPU us':>8} {'4 threads/s':>12} {'busiest':>8}")
    with EtcdCluster(1) as etcd, StoreProcess() as store, RedisProcess(folder / "redis") as server:
        etcd_pid = etcd.nodes[0].pid
        rows: list[tuple[str, Callable[[str, str], locks.Lock], str, int]] = [
            ("leasehold.concurrency, etcd", locks.ours, etcd.url, etcd_pid),
            ("leasehold.concurrency, leasehold store", locks.ours, store.url, store.pid),
            ("contrib.etcd3, etcd", locks.our_etcd3, etcd.url, etcd_pid),
            ("tooz, leasehold driver, etcd", locks.tooz, etcd.url.replace("etcd:", "leasehold:"), etcd_pid),
            ("tooz, its etcd3gw driver, etcd", locks.tooz, etcd.url.replace("etcd:", "etcd3+http:"), etcd_pid),
            ("tooz, its redis driver", locks.tooz, server.url, server.pid),
            ("redis-py Lock", locks.redis_py, server.url, server.pid),
        ]
        for number, (name, make, url, pid) in enumerate(rows):
            found = locks.measure(make, url, pid, f"bench-{number}")
            figures = (
                f"{found.alone_per_s:9,.0f} {found.cpu_us:8,.0f} {found.together_per_s:12,.0f} {found.busiest:8.0%}"
            )
            print(f"  {name:<40} {figures}", flush=True)
            if "leasehold" in name or "contrib" in name:
                record(f"lock, {name}", found.alone_per_s, PER_SECOND)


def bench_caches(folder: Path) -> None:
    head = f"{'reads/s':>10} {'CPU us':>8} {'stale, running':>15} {'stale, paused':>14} {'write ms':>9} {'paused':>8}"
    print(f"  {'caches':<34} {head}")
    with (
        CacheProcess(folder, "--store", "memory://", "--term", TERM) as cache,
        RedisProcess(folder / "redis") as server,
    ):
        for kind, address, pid in [
            ("leasehold, Django", cache.address, cache.pid),
            ("leasehold, aiocache", cache.address, cache.pid),
            ("django-redis", server.url, server.pid),
            ("redis-py, client-side caching", server.url, server.pid),
            ("coredis, tracking cache", server.url, server.pid),
        ]:
            found = measure_cache(kind, address, pid)
            figures = (
                f"{found.reads_per_s:10,.0f} {found.cpu_us:8.1f} {found.stale_running:15,} {found.stale_paused:14,}"
            )
            print(f"  {kind:<34} {figures} {found.write_ms:9.2f} {found.paused_write_ms:8.1f}", flush=True)
            if kind.startswith("leasehold"):
                record(f"cache, {kind}", found.reads_per_s, PER_SECOND)


def main() -> None:
    print("  " + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS))
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder:
        bench_locks(Path(folder) / "locks")
        bench_caches(Path(folder) / "caches")
