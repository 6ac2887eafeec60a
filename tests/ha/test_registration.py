"""What a node says about itself reaches the others at once, unless it is only its mark."""

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


class Desk:
    """A registration, and a store that answers when told to."""

    def __init__(self) -> None:
        identity = Identity("a", "r", "c")
        self.ctx = Context(identity, HaSettings(), lambda: Index(IndexSettings(), lambda n: 0))
        self.registration = Registration(self.ctx)

    def answer(self, now_ms: int) -> list[str]:
        """Answer everything that was asked; the values that were put."""
        put: list[str] = []
        effects: list[NodeEffect] = self.ctx.desk.take()
        for effect in effects:
            if isinstance(effect, GrantLease):
                granted = LeaseGrantResult(Header(1), 7, 10)
                self.ctx.desk.answered(now_ms, StoreAnswered(effect.request, result=granted))
            elif isinstance(effect, StoreRequest) and isinstance(effect.op, Put):
                put.append(effect.op.value.decode())
                self.ctx.desk.answered(now_ms, StoreAnswered(effect.request, result=OK))
        return put


def test_a_change_of_role_does_not_wait_for_a_mark_that_does() -> None:
    """Found by a switchover on real processes: a standby that was ready was not listed as ready for two seconds."""
    desk = Desk()
    desk.registration.want(0, value("catching up", 1))
    desk.answer(0)
    assert len(desk.answer(1)) == 1
    desk.registration.want(10, value("catching up", 2))  # only the mark: it waits
    assert desk.answer(10) == []
    desk.registration.want(20, value("standby", 3))
    assert "standby" in desk.answer(20)[0]
    desk.registration.want(30, value("standby", 4))
    assert desk.answer(30) == []
    desk.registration.tick(desk.registration.wake_at_ms)
    assert len(desk.answer(3_000)) == 1
