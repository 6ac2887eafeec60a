"""The problems listed below the table of `leasehold status`."""

from __future__ import annotations

import io

from rich.console import Console

from leasehold.admin.status import ClusterStatus, DeadNode, NodeStatus, Peer
from leasehold.cli.exit_codes import ExitCode
from leasehold.cli.status import Everything, exit_code, problems, show


def peer(name: str, *, leads: bool = False) -> Peer:
    return Peer(name, "primary" if leads else "standby", True, 5, f"{name}:50051", f"{name}:8700", leads=leads)


def status(name: str, *, ready: bool = True, leads: bool = False, reason: str = "") -> NodeStatus:
    role = "primary" if leads else "standby" if ready else "follower"
    return NodeStatus(
        name=name, run="r", cluster="c", version="0", role=role, reason=reason, may_serve=leads, ready=ready
    )


def everything(settings: dict[str, dict[str, str]] | None = None, dead: tuple[DeadNode, ...] = ()) -> Everything:
    cluster = ClusterStatus(cluster="c", leader="a", epoch=5, nodes=(peer("a", leads=True), peer("b")), dead=dead)
    nodes = {"a": status("a", leads=True), "b": status("b")}
    return Everything(cluster, nodes, settings=settings or {})


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


def test_different_settings_are_named() -> None:
    """A node with other lease times joined silently: a failover to it changed what clients relied on."""
    one, other = {"index.lease_ttl": "10s", "ha.copies": "2"}, {"index.lease_ttl": "5s", "ha.copies": "2"}
    assert problems(everything(settings={"a": one, "b": other})) == [
        "the nodes have different values of index.lease_ttl (a 10s, b 5s): give all nodes the same settings"
    ]
    assert problems(everything(settings={"a": one, "b": one})) == []


def test_a_dead_node_is_shown_as_dead() -> None:
    found = everything(dead=(DeadNode("c", "c:50051", "c:8700", "0.9", 1),))
    assert problems(found)[0].startswith("c is dead")
    text = io.StringIO()
    show(found, Console(file=text, width=200))
    assert "c     dead     no     0.9" in text.getvalue()


def test_exit_codes() -> None:
    healthy = everything()
    assert exit_code(healthy) is ExitCode.OK
    assert exit_code(everything(settings={"a": {"x": "1"}, "b": {"x": "2"}})) is ExitCode.PROBLEMS
    leaderless = Everything(healthy.cluster, {"b": status("b")})
    assert exit_code(leaderless) is ExitCode.NO_LEADER
