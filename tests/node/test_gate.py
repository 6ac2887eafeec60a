"""The gate between machine and wire: never absent, never early."""

from __future__ import annotations

from leasehold.base.clock import ManualClock
from leasehold.ha.machine import Identity, NodeMachine
from leasehold.ha.settings import HaSettings
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.node.service.gate import NodeGate
from leasehold.wire.gate import OpenGate
from leasehold.wire.server import Server


class EmptyGate(OpenGate):
    """A gate that counts what it holds, and holds nothing yet."""

    def __len__(self) -> int:
        return 0


async def test_a_server_never_takes_an_idle_gate_for_none() -> None:
    """It once did, and served through an open one: puts were acknowledged before they were durable."""
    gate = EmptyGate()
    server = Server(gate)
    assert server.gate is gate
    server.close()


def test_a_follower_holds_every_answer_and_gives_them_up_when_it_steps_down() -> None:
    clock = ManualClock(1_000)
    identity = Identity(name="n", run="r", cluster="c")
    machine = NodeMachine(identity, HaSettings(), lambda: Index(IndexSettings(), lambda choices: 0))
    gate = NodeGate(machine, clock, call_deadline_ms=20_000)
    assert gate, "an idle gate is a gate"
    assert not gate.may_serve()
    told: list[str] = []
    gate.when_durable(1, lambda: told.append("sent"), lambda: told.append("unknown"))
    gate.when_durable(2, lambda: told.append("sent"), lambda: told.append("unknown"), space=True)
    gate.progress()
    assert (gate.held, told) == (2, [])
    clock.advance(21_000)
    gate.overdue()
    assert (gate.held, told, gate.unknown_count) == (0, ["unknown", "unknown"], 2)
