"""The leader lease, and the outbox that holds answers back."""

from __future__ import annotations

import pytest

from leasehold.base.codes import Code
from leasehold.base.errors import SettingError
from leasehold.ha.leader_lease import LeaderLease
from leasehold.ha.outbox import FOREVER, NEVER_MS, Outbox
from leasehold.ha.settings import HaSettings
from leasehold.index.replies import Acknowledged, SpaceHandedOut, View
from leasehold.wire.answers import Waiting


def test_the_lease_counts_from_the_send_of_a_committed_write() -> None:
    lease = LeaderLease(3_000, 200)
    assert not lease.holds(0)
    lease.committed(1_000)
    assert lease.holds(3_799)
    assert not lease.holds(3_800)
    lease.committed(500)  # an older one does not shorten it
    assert lease.holds(3_799)


def test_after_a_resignation_nothing_brings_it_back() -> None:
    """H5, schedule 7b: whatever became of the answer."""
    lease = LeaderLease(3_000, 200)
    lease.committed(1_000)
    lease.give_up()
    assert not lease.holds(1_001)
    lease.committed(1_500)
    assert not lease.holds(1_501)


def outbox_of(durable_n: int = 0, acked_n: int = 0) -> Outbox:
    """An outbox under a leader lease."""
    outbox = Outbox(20_000)
    outbox.durable_n, outbox.acked_n, outbox.lease_until_ms = durable_n, acked_n, FOREVER
    return outbox


def frames(answers: list[Waiting]) -> list[str]:
    return [one.payload for one in answers]


def test_an_answer_leaves_when_its_record_is_durable_and_the_lease_holds() -> None:
    outbox = outbox_of()
    outbox.enqueue(Acknowledged(Code.OK, 5), "put_end")
    outbox.enqueue(Acknowledged(Code.OK, 4), "remove")
    assert outbox.release(1) == []
    outbox.durable_n = outbox.acked_n = 4
    assert frames(outbox.release(2)) == ["remove"]
    outbox.durable_n = outbox.acked_n = 9
    outbox.lease_until_ms = NEVER_MS
    assert outbox.release(3) == []
    outbox.lease_until_ms = FOREVER
    assert frames(outbox.release(4)) == ["put_end"]
    assert outbox.waiting == 0


def test_an_answer_whose_record_is_durable_is_released_immediately() -> None:
    outbox = outbox_of(durable_n=3, acked_n=5)
    assert outbox.submit(View(None, 5), b"view") == b"view"
    assert outbox.submit(SpaceHandedOut(Code.OK, None, 3), b"space") == b"space"
    waiting = outbox.submit(SpaceHandedOut(Code.OK, None, 4), b"space")
    assert isinstance(waiting, Waiting)
    assert (waiting.payload, waiting.kept_bytes) == (b"space", 5)


def test_space_waits_for_the_store_also_where_the_rest_does_not() -> None:
    """P3, with `buffered` and `async`."""
    outbox = outbox_of(durable_n=0, acked_n=5)
    outbox.enqueue(SpaceHandedOut(Code.OK, None, 3), "put_start")
    outbox.enqueue(Acknowledged(Code.OK, 4), "put_end")
    assert frames(outbox.release(1)) == ["put_end"]
    outbox.durable_n = 3
    assert frames(outbox.release(2)) == ["put_start"]


def test_after_the_deadline_the_outcome_is_unknown() -> None:
    outbox = outbox_of()
    outbox.enqueue(Acknowledged(Code.OK, 5), "late")
    outbox.now_ms = 10_000
    outbox.enqueue(Acknowledged(Code.OK, 6), "later")
    assert outbox.overdue(19_999) == []
    assert frames(outbox.overdue(20_000)) == ["late"]
    assert frames(outbox.drop_all()) == ["later"]


def test_settings_that_break_a_law_are_refused() -> None:
    with pytest.raises(SettingError, match="two flush intervals"):
        HaSettings(leader_ttl_ms=1_000).check()
    with pytest.raises(SettingError, match="margin"):
        HaSettings(leader_margin_ms=20).check()
