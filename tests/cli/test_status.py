"""The problems listed below the table of `leasehold status`."""

from __future__ import annotations

import msgspec

from leasehold.admin.status import ClusterStatus, NodeStatus, Peer
from leasehold.cli.status import Everything, problems


def peer(name: str, *, leads: bool = False) -> Peer:
    return Peer(name, "primary" if leads else "standby", True, 5, f"{name}:50051", f"{name}:8700", leads=leads)


def status(name: str, *, ready: bool = True, leads: bool = False, reason: str = "") -> NodeStatus:
    role = "primary" if leads else "standby" if ready else "follower"
    return NodeStatus(
        name=name, run="r", cluster="c", version="0", role=role, reason=reason, may_serve=leads, ready=ready
    )


def seen(*nodes: NodeStatus) -> list[str]:
    cluster = ClusterStatus(cluster="c", leader="a", epoch=5, nodes=(peer("a", leads=True), peer("b")))
    return problems(Everything(cluster, {node.name: node for node in nodes}))


def test_a_healthy_cluster_has_no_problems() -> None:
    assert seen(status("a", leads=True), status("b")) == []


def test_the_reason_of_a_standby_that_is_not_ready_is_shown_before_the_store_has_it() -> None:
    found = seen(status("a", leads=True), status("b", ready=False, reason="Listing the journal after record 0."))
    assert found[0].startswith("no standby is ready")
    assert found[1] == "b is not ready (follower): Listing the journal after record 0."


def test_a_node_that_does_not_answer_is_named() -> None:
    assert seen(status("a", leads=True))[-1].startswith("b does not answer at b:8700")


def test_different_lease_settings_are_named() -> None:
    """A node with other lease times joined silently: a failover to it changed what clients relied on."""
    one = msgspec.structs.replace(status("a", leads=True), terms={"lease_ttl": 10_000, "leader_ttl": 3_000})
    other = msgspec.structs.replace(status("b"), terms={"lease_ttl": 5_000, "leader_ttl": 3_000})
    assert seen(one, other) == [
        "the nodes have different values of lease_ttl (a 10s, b 5s): give all nodes the same settings"
    ]
    assert seen(one, msgspec.structs.replace(other, terms=one.terms)) == []
