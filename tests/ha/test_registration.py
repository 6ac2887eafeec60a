"""A node publishes its status immediately, unless only its applied position changed."""

from __future__ import annotations

from leasehold.ha.context import Context, Identity
from leasehold.ha.effects import GrantLease, NodeEffect, StoreRequest
from leasehold.ha.events import StoreAnswered
from leasehold.ha.node_values import NodeValue
from leasehold.ha.registration import Registration
from leasehold.ha.settings import HaSettings
from leasehold.index import Index, IndexSettings
from leasehold.mvcc.model import Header, LeaseGrantResult, Put, PutResult

OK = PutResult(Header(1))


def value(role: str, applied_n: int) -> NodeValue:
    return NodeValue(name="a", run="r", role=role, ready=role == "standby", applied_n=applied_n)


class Fixture:
    """A registration, and a store that answers on request."""

    def __init__(self) -> None:
        identity = Identity("a", "r", "c")
        self.ctx = Context(identity, HaSettings(), lambda: Index(IndexSettings(), lambda n: 0))
        self.registration = Registration(self.ctx)

    def answer(self, now_ms: int) -> list[str]:
        """Answer all requests; returns the values that were put."""
        put: list[str] = []
        effects: list[NodeEffect] = self.ctx.effects.take()
        for effect in effects:
            if isinstance(effect, GrantLease):
                granted = LeaseGrantResult(Header(1), 7, 10)
                self.ctx.effects.answered(now_ms, StoreAnswered(effect.request, result=granted))
            elif isinstance(effect, StoreRequest) and isinstance(effect.op, Put):
                put.append(effect.op.value.decode())
                self.ctx.effects.answered(now_ms, StoreAnswered(effect.request, result=OK))
        return put


def test_a_change_of_role_does_not_wait_for_a_delayed_applied_position() -> None:
    """Found by a switchover on real processes: a ready standby was not listed as ready for two seconds."""
    fixture = Fixture()
    fixture.registration.want(0, value("catching up", 1))
    fixture.answer(0)
    assert len(fixture.answer(1)) == 1
    fixture.registration.want(10, value("catching up", 2))  # only the applied position: it waits
    assert fixture.answer(10) == []
    fixture.registration.want(20, value("standby", 3))
    assert "standby" in fixture.answer(20)[0]
    fixture.registration.want(30, value("standby", 4))
    assert fixture.answer(30) == []
    fixture.registration.tick(fixture.registration.wake_at_ms)
    assert len(fixture.answer(3_000)) == 1
