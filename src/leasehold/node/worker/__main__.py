"""The worker process. Only a guardian starts it: `python -m leasehold.node.worker FD`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sys

import msgspec
import structlog
import uvloop

from leasehold.admin.server import AdminServer
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.ha.keys import Keys
from leasehold.node.access import access_policy, host_policy
from leasehold.node.boot import Boot, read_boot
from leasehold.node.guardian.leader_key import release
from leasehold.node.members import enlist
from leasehold.node.settings import NodeConfig
from leasehold.node.worker.admin_view import AdminView
from leasehold.node.worker.compaction import keep_compacting
from leasehold.node.worker.guardian_link import GuardianLink, die_with_guardian
from leasehold.node.worker.metadata import NodeMetadata
from leasehold.node.worker.mooncake_view import MooncakeView
from leasehold.node.worker.operator_routes import operator_routes
from leasehold.node.worker.run import RunningNode
from leasehold.runtime import log as logs
from leasehold.runtime.tls import Tls

log = structlog.get_logger("leasehold.worker")

RELEASE_TIMEOUT_S = 5.0
FAILED = 70  # exit status: an invariant is broken, so this state must not be used any longer


async def run(boot: Boot, config: NodeConfig) -> int:
    """Run one node until it is stopped or fails; returns the exit status."""
    stop = asyncio.Event()
    guardian = GuardianLink(boot, stop.set)
    coord = await connect(config.node.coord)
    node = RunningNode(boot, config, coord, guardian)
    hosts = host_policy(config)
    policy, tls = access_policy(config), Tls.of(config.tls)
    sock = socket.socket(fileno=boot.admin.fd)
    view = AdminView(node)
    admin = AdminServer(view, MooncakeView(node), sock, policy, hosts, tls, operator_routes(node))
    await admin.start()
    metadata = NodeMetadata(node, hosts, tls if config.tls.tls_metadata else None)
    if boot.metadata is not None:
        await metadata.start(socket.socket(fileno=boot.metadata.fd))
    await _release_leader_key(config, coord, boot.reaped, "reaped by the guardian")
    node.start()
    compacting = _compacting(config, coord, node)
    enlisting = asyncio.ensure_future(enlist(coord, Keys(config.node.cluster, config.node.prefix), node.member()))
    stopper = asyncio.ensure_future(stop.wait())
    stopper.add_done_callback(lambda _: node.stop())
    await node.stopped.wait()
    if node.failed is not None:
        return FAILED  # immediately: nothing of this state may be written to the store
    stopper.cancel()
    compacting.cancel()
    enlisting.cancel()
    await node.close()
    # This run can send no more answers. If the guardian cannot reach the store, the worker resigns here.
    await _release_leader_key(config, coord, (boot.run,), "stopped in an orderly way")
    await metadata.close()
    await admin.close()
    view.close()
    await coord.close()
    return 0


def _compacting(config: NodeConfig, coord: Coord, node: RunningNode) -> asyncio.Future[None]:
    """Compact the store until cancelled, if configured; an embedded store compacts itself."""
    keep_ms = config.node.coord_compact_ms
    if not keep_ms:
        return asyncio.get_running_loop().create_future()
    return asyncio.ensure_future(keep_compacting(coord, keep_ms, lambda: node.machine.may_serve(node.clock.now_ms())))


async def _release_leader_key(config: NodeConfig, coord: Coord, runs: tuple[str, ...], how: str) -> None:
    """Delete the leader key of these runs, if the store is inside the worker, where the guardian cannot reach it."""
    if config.node.coord.startswith(("etcd://", "etcds://")):
        return
    keys = Keys(config.node.cluster, config.node.prefix)
    for run in runs:
        with contextlib.suppress(TimeoutError):  # then the key expires with its lease
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await release(coord, keys, run, how)


def main() -> None:
    boot = read_boot(int(sys.argv[1]))
    die_with_guardian(boot)
    config = msgspec.json.decode(boot.settings, type=NodeConfig)
    logs.configure(format=config.node.log, level=config.node.log_level, node=config.node.name)
    # Many small, long-lived objects: collect rarely, and never the oldest generation during a request.
    gc.set_threshold(50_000, 20, 1_000)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if config.node.uvloop else None) as runner:
        status = runner.run(run(boot, config))
    sys.stdout.flush()
    os._exit(status)  # no thread may delay the exit of a worker that has nothing left to do


if __name__ == "__main__":
    main()
