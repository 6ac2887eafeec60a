"""Orders to a running node: restart, rebuild, log level; and removing a dead node from the list."""

from __future__ import annotations

import asyncio
from typing import Final

from leasehold.admin.node_orders import LogLevel
from leasehold.admin.status import Operated
from leasehold.base.errors import InvalidArgument
from leasehold.ha.effects import Role
from leasehold.ha.keys import Keys
from leasehold.node import members
from leasehold.node.worker.run import RunningNode
from leasehold.runtime import log as logs

ANSWER_S: Final = 0.3  # for the answer to reach the caller before the worker stops
STORE_TIMEOUT_S: Final = 2.0


class NodeOrders:
    """Implements `admin.node_orders.NodeOrdersFace`."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        settings = node.config.node
        self._keys = Keys(settings.cluster, settings.prefix)

    def log_level(self) -> LogLevel:
        settings = self._node.config.node
        return LogLevel(settings.name, logs.threshold.level, settings.log_level)

    def set_log_level(self, level: str) -> Operated:
        try:
            logs.threshold.change(level)
        except InvalidArgument as error:
            return Operated(False, str(error))
        name = self._node.config.node.name
        return Operated(True, f"{name} logs from level '{level}' on, until its worker is restarted")

    async def restart(self, force: bool) -> Operated:
        if self._node.machine.role is Role.PRIMARY and not self._others_ready() and not force:
            return Operated(
                False,
                "this node leads, and no other node is ready to lead: a restart is an outage of some seconds; start "
                "another node, or add --force",
            )
        return self._stop_soon("its guardian starts another one; a primary hands over first")

    async def reinit(self) -> Operated:
        machine = self._node.machine
        if machine.role is Role.PRIMARY:
            return Operated(False, "this node leads, and its state is the cluster's: switch over first")
        if missing := self._not_covered():
            return Operated(False, missing)
        removed = await self._node.keeping.snapshots.delete_all()
        return self._stop_soon(f"{removed} snapshots were deleted, and the next one copies another node's state")

    def _not_covered(self) -> str:
        """Why the state of this node is needed; "" if the other nodes have all of it."""
        view, own = self._node.machine.ctx.view, self._node.machine.identity.name
        covered = any(
            snapshot.low_n >= view.truncated_n
            for node in view.nodes.values()
            if node.name != own
            for snapshot in node.snapshots
        )
        if covered or not view.truncated_n:
            return ""
        return (
            f"no other node has a snapshot of the records up to {view.truncated_n}, which left the journal"
            ": deleting the snapshots of this node could lose the index"
        )

    def _others_ready(self) -> bool:
        own = self._node.machine.identity.name
        return any(node.ready for node in self._node.machine.ctx.view.nodes.values() if node.name != own)

    def _stop_soon(self, what: str) -> Operated:
        asyncio.get_running_loop().call_later(ANSWER_S, self._node.stop)
        return Operated(True, f"the worker of {self._node.config.node.name} stops: {what}")

    async def remove_node(self, name: str) -> Operated:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            if name in self._node.machine.ctx.view.nodes:
                return Operated(False, f"'{name}' is registered, so it is alive: stop it first")
            if not await members.forget(self._node.coord, self._keys, name):
                return Operated(False, f"'{name}' is not on the list: see `leasehold nodes list`")
        return Operated(True, f"'{name}' is not listed any more; if it is started again, it is")
