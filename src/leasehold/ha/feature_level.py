"""When the cluster's feature level may be switched. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.ha.node_values import NodeValue
from leasehold.index.features import LEVEL_NEWEST


def obstacle(level: int, present: int, nodes: Iterable[NodeValue]) -> str:
    """Why the level cannot be switched from `present` to `level`; empty if it can."""
    if level == present:
        return f"the feature level is {present} already"
    if not 0 <= level <= LEVEL_NEWEST:
        return f"this release has no feature level '{level}': choose 0 to {LEVEL_NEWEST}"
    if old := sorted(node.name for node in nodes if node.reads_level < level):
        return f"{' and '.join(old)} cannot read feature level {level}: upgrade or stop every such node first"
    return ""


def level_of_new_cluster(nodes: Iterable[NodeValue]) -> int:
    """The highest level that every registered node can read."""
    return min([LEVEL_NEWEST, *(node.reads_level for node in nodes)])
