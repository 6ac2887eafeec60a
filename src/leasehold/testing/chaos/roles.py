"""Samples of every node's role, for the timeline."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from leasehold.admin.status import NodeStatus
from leasehold.runtime.clock import boot_ns
from leasehold.testing.node import NodeGroup, NodeProcess

INTERVAL_S = 0.25
ANSWER_S = 0.5


class RoleSample(Struct, frozen=True):
    """The role of one node at one moment; `role` is "" if it did not answer."""

    at_ns: int
    node: str
    role: str
    epoch: int = 0


async def sample_roles(nodes: NodeGroup, samples: list[RoleSample]) -> None:
    """Add samples until cancelled."""
    while True:
        samples += await asyncio.gather(*(asyncio.to_thread(_sample, node) for node in nodes.nodes))
        await asyncio.sleep(INTERVAL_S)


def _sample(node: NodeProcess) -> RoleSample:
    at_ns = boot_ns()
    code, body = node.http("/api/status", timeout_s=ANSWER_S)
    if code != 200:
        return RoleSample(at_ns, node.node_name, "")
    status = msgspec.json.decode(body, type=NodeStatus)
    return RoleSample(at_ns, node.node_name, "primary" if status.may_serve else status.role, status.epoch)
