"""The right to serve, and the gate that holds answers back."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from leasehold.base.errors import SettingError
from leasehold.ha.answer_gate import AnswerGate, Verdict
from leasehold.ha.leader_lease import Right
from leasehold.ha.settings import HaSettings


def test_the_right_counts_from_the_send_of_a_committed_write() -> None:
    right = Right(3_000, 200)
    assert not right.holds(0)
    right.committed(1_000)
    assert right.holds(3_799)
    assert not right.holds(3_800)
    right.committed(500)  # an older one does not shorten it
    assert right.holds(3_799)


def test_after_a_resignation_nothing_brings_it_back() -> None:
    """H5, schedule 7b: whatever became of the answer."""
    right = Right(3_000, 200)
    right.committed(1_000)
    right.give_up()
    assert not right.holds(1_001)
    right.committed(1_500)
    assert not right.holds(1_501)


@dataclass
class Server:
    durable_n: int = 0
    acked_n: int = 0
    serves: bool = True

    def may_serve(self, now_ms: int) -> bool:
        return self.serves


def test_an_answer_leaves_when_its_record_is_durable_and_the_right_holds() -> None:
    gate: AnswerGate[str] = AnswerGate(20_000)
    server = Server()
    gate.hold(0, 5, "put_end")
    gate.hold(0, 4, "remove")
    assert gate.release(1, server) == []
    server.durable_n = server.acked_n = 4
    assert gate.release(2, server) == [("remove", Verdict.SEND)]
    server.durable_n = server.acked_n = 9
    server.serves = False
    assert gate.release(3, server) == []
    server.serves = True
    assert gate.release(4, server) == [("put_end", Verdict.SEND)]
    assert len(gate) == 0


def test_space_waits_for_the_store_also_where_the_rest_does_not() -> None:
    """P3, with `buffered` and `async`."""
    gate: AnswerGate[str] = AnswerGate(20_000)
    server = Server(durable_n=0, acked_n=5)
    gate.hold(0, 3, "put_start", hands_out_space=True)
    gate.hold(0, 4, "put_end")
    assert gate.release(1, server) == [("put_end", Verdict.SEND)]
    server.durable_n = 3
    assert gate.release(2, server) == [("put_start", Verdict.SEND)]


def test_after_the_deadline_the_outcome_is_unknown() -> None:
    gate: AnswerGate[str] = AnswerGate(20_000)
    gate.hold(0, 5, "late")
    gate.hold(10_000, 6, "later")
    assert gate.overdue(19_999) == []
    assert gate.overdue(20_000) == [("late", Verdict.UNKNOWN)]
    assert gate.drop_all() == [("later", Verdict.UNKNOWN)]


def test_settings_that_break_a_law_are_refused() -> None:
    with pytest.raises(SettingError, match="two flush intervals"):
        HaSettings(leader_ttl_ms=1_000).check()
    with pytest.raises(SettingError, match="margin"):
        HaSettings(leader_margin_ms=20).check()
