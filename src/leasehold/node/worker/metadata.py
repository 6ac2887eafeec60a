"""The HTTP metadata server of a running node: the table in its store, and who is alive according to its index."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from leasehold.base.errors import LeaseholdError
from leasehold.base.hosts import HostPolicy
from leasehold.ha.keys import Keys
from leasehold.node.service.metadata_cleanup import MetadataCleanup
from leasehold.node.service.metadata_owners import OwnerCheck, Pings
from leasehold.node.service.metadata_server import MetadataServer
from leasehold.node.service.metadata_table import MetadataTable
from leasehold.node.worker.run import RunningNode
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tls import Tls
from leasehold.wire.channel import open_channel
from leasehold.wire.finder import parse_address
from leasehold.wire.native import OWNER_PINGS, AskOwner

ASK_TIMEOUT_MS: Final = 500


class NodeMetadata:
    """`start` on a listening socket, `close` at the end."""

    def __init__(self, node: RunningNode, hosts: HostPolicy, tls: Tls | None = None) -> None:
        self._node = node
        settings = node.config.node
        self._table = MetadataTable(node.coord, Keys(settings.cluster, settings.prefix).metadata)
        self._server = MetadataServer(self._table, OwnerCheck(self._pings), hosts, tls)
        self._cleanup = MetadataCleanup(self._table, lambda: node.machine.index, self._leads, node.clock.now_ms)
        self._tasks = TaskSet()

    async def start(self, sock: socket.socket) -> None:
        self._tasks.start(self._table.follow())
        self._tasks.start(self._cleanup.run())
        await self._server.start(sock)

    async def close(self) -> None:
        await self._tasks.close()
        await self._server.close()

    def _leads(self) -> bool:
        return self._node.machine.may_serve(self._node.clock.now_ms())

    async def _pings(self, name: str) -> Pings:
        """Whether the client that lends segments of this name pings. Only the primary receives pings."""
        if self._leads():
            return self._node.owner_pings.of_name(self._node.machine.index, name)
        leader = self._node.machine.ctx.view.leader
        if leader is None or not leader.value.rpc:
            return Pings.UNKNOWN
        with contextlib.suppress(LeaseholdError, ValueError):  # the leader changes, or is of an older release
            channel = await open_channel(*parse_address(leader.value.rpc), timeout_ms=ASK_TIMEOUT_MS)
            try:
                answer = await channel.call(OWNER_PINGS, AskOwner(name), timeout_ms=ASK_TIMEOUT_MS)
                return Pings(answer.pings)
            finally:
                channel.close()
        return Pings.UNKNOWN
