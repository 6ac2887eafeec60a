"""The routes of the operator's commands that have an interface of their own to a running node."""

from __future__ import annotations

from leasehold.admin.checkup_routes import checkup_routes
from leasehold.admin.guard import Route
from leasehold.admin.node_orders import node_order_routes
from leasehold.admin.objects import object_routes
from leasehold.node.worker.checkup import Checkups
from leasehold.node.worker.node_orders import NodeOrders
from leasehold.node.worker.objects_view import ObjectsView
from leasehold.node.worker.run import RunningNode


def operator_routes(node: RunningNode) -> tuple[Route, ...]:
    return (*checkup_routes(Checkups(node)), *object_routes(ObjectsView(node)), *node_order_routes(NodeOrders(node)))
