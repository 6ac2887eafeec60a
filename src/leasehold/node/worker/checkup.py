"""Finds out the facts for `leasehold doctor` on a running node: the store, the disk, descriptors, storage hosts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
from pathlib import Path
from typing import Final

from leasehold.admin.checkup import (
    ClockReading,
    DiskCheckup,
    HostCheckup,
    NodeCheckup,
    ShownConfig,
    StoreCheckup,
)
from leasehold.base.errors import LeaseholdError
from leasehold.coord.url import parse_url
from leasehold.etcd.diagnosis import unreachable
from leasehold.ha.effects import Role
from leasehold.ha.keys import Keys
from leasehold.index.model import Segment
from leasehold.node import timing_rules
from leasehold.node.settings import NodeConfig, split_address
from leasehold.node.shown_settings import shown_config
from leasehold.node.worker.run import RunningNode
from leasehold.pool.probe import probe_host
from leasehold.runtime.certificate_end import certificate_end_s
from leasehold.runtime.clock import boot_ns, wall_us
from leasehold.runtime.tls import Tls

STORE_READS: Final = 5
STORE_TIMEOUT_S: Final = 2.0
DISK_WRITES: Final = 3
DISK_WRITE_BYTES: Final = 64 * 1024
DISK_TIMEOUT_S: Final = 10.0
PROBE_TIMEOUT_S: Final = 1.0
HOSTS_MAX: Final = 64  # storage hosts that one checkup probes; the newest first
HOSTS_PARALLEL: Final = 8
FILES_RESERVE: Final = 256  # listeners, the store, logs, snapshots, the admin port
_NS_PER_MS: Final = 1_000_000


class Checkups:
    """Implements `admin.checkup.CheckupFace`. Callers at the same time share one checkup: it writes to the disk."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self._running: asyncio.Task[NodeCheckup] | None = None

    def clock(self) -> ClockReading:
        return ClockReading(self._node.config.node.name, boot_ns() // 1_000, wall_us())

    def config(self) -> ShownConfig:
        return shown_config(self._node.config)

    async def checkup(self) -> NodeCheckup:
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._examine())
        return await asyncio.shield(self._running)

    async def _examine(self) -> NodeCheckup:
        node, config = self._node, self._node.config
        segments = _native_segments(node)
        store, disk, hosts = await asyncio.gather(
            self._store(), _disk(config.node.data_dir), _hosts(node, segments[:HOSTS_MAX], Tls.of(config.tls))
        )
        return NodeCheckup(
            name=config.node.name,
            store=store,
            disk=disk,
            files_open=_open_files(),
            files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            files_needed=files_needed(config),
            drift=config.ha.drift,
            store_timeout_ms=config.ha.store_timeout_ms,
            commit_p99_ms=int(node.driver.meter.commit_ns.quantile(0.99)) // _NS_PER_MS,
            risky=tuple(f"{law.name}: {law.why}" for law in timing_rules.leadership(config).risky),
            hosts=hosts,
            hosts_not_probed=max(0, len(segments) - HOSTS_MAX),
        )

    async def _store(self) -> StoreCheckup:
        coord, url = self._node.coord, self._node.config.node.coord
        key, took_ms = Keys(self._node.config.node.cluster, self._node.config.node.prefix).leader, []
        ends_s = await _store_certificates(url)
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                for _ in range(STORE_READS):
                    began_ns = boot_ns()
                    await coord.get_one(key)
                    took_ms.append((boot_ns() - began_ns) // _NS_PER_MS)
                status = await coord.status()
        except (LeaseholdError, TimeoutError):
            return StoreCheckup(await unreachable(url), tuple(took_ms), certificate_ends_s=ends_s)
        return StoreCheckup("", tuple(took_ms), status.version, status.db_size, status.errors, ends_s)


def files_needed(config: NodeConfig) -> int:
    """Descriptors that the limits of the settings may need."""
    return config.wire.connections_max + config.guardian.held_connections_max + FILES_RESERVE


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _store_certificates(url: str) -> dict[str, int]:
    address, _ = parse_url(url)
    found: dict[str, int] = {}
    if address.scheme == "etcds":
        for endpoint in address.endpoints:
            with contextlib.suppress(LeaseholdError):  # an endpoint that is down
                found[endpoint] = await certificate_end_s(*split_address(endpoint, "coord"), PROBE_TIMEOUT_S)
    return found


async def _disk(folder: str) -> DiskCheckup:
    try:
        async with asyncio.timeout(DISK_TIMEOUT_S):
            return await asyncio.to_thread(_write_durably, folder)
    except TimeoutError:
        return DiskCheckup(folder, f"a write of {DISK_WRITE_BYTES} bytes took longer than {DISK_TIMEOUT_S:g} s")


def _write_durably(folder: str) -> DiskCheckup:
    took_ms, path = [], Path(folder) / f".checkup-{secrets.token_hex(4)}"
    try:
        for _ in range(DISK_WRITES):
            began_ns = boot_ns()
            with path.open("wb") as file:
                file.write(bytes(DISK_WRITE_BYTES))
                file.flush()
                os.fdatasync(file.fileno())
            took_ms.append((boot_ns() - began_ns) // _NS_PER_MS)
        disk = os.statvfs(folder)
    except OSError as error:
        return DiskCheckup(folder, error.strerror or str(error))
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return DiskCheckup(folder, "", disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize, tuple(took_ms))


def _native_segments(node: RunningNode) -> list[Segment]:
    """Segments of our own storage hosts, the newest first. Mooncake's hosts speak a protocol of their own."""
    if node.machine.role is not Role.PRIMARY:
        return []
    by_endpoint = {each.spec.endpoint: each for each in node.machine.index.space.segments.values() if each.native}
    return list(reversed(by_endpoint.values()))


async def _hosts(node: RunningNode, segments: list[Segment], tls: Tls | None) -> tuple[HostCheckup, ...]:
    slots = asyncio.Semaphore(HOSTS_PARALLEL)

    async def examine(segment: Segment) -> HostCheckup:
        spec = segment.spec
        async with slots:
            capability = node.storage_hosts.probe(segment)
            problem = await probe_host(spec.endpoint, spec.base, capability, tls, PROBE_TIMEOUT_S)
            end_s = 0
            if tls is not None:
                with contextlib.suppress(LeaseholdError):
                    end_s = await certificate_end_s(*split_address(spec.endpoint, "endpoint"), PROBE_TIMEOUT_S)
        return HostCheckup(spec.name, spec.endpoint, problem, end_s)

    return tuple(await asyncio.gather(*map(examine, segments)))
