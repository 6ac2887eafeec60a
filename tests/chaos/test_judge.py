"""The judge of a chaos run finds every kind of violation in a history, and none in a good one."""

from __future__ import annotations

from typing import Any

from leasehold.testing.chaos.history import Call, Extent, HostLoss, What
from leasehold.testing.chaos.judge import Verdict, judge
from leasehold.testing.chaos.values import value_of, version_in

MS = 1_000_000
PLACE = Extent("h1:1", 4096, 100)
PASSING = Extent("passing:1", 4096, 100)


def call(what: What, start_ms: int, end_ms: int, version: str | None = None, **more: Any) -> Call:
    fields: dict[str, Any] = {"client": "c", "key": "k", "outcome": "ok"} | more
    return Call(what=what, called_ns=start_ms * MS, returned_ns=end_ms * MS, version=version, **fields)


def write(start_ms: int, end_ms: int, version: str, **more: Any) -> Call:
    fields: dict[str, Any] = {"placed_ns": (start_ms + 1) * MS, "extents": (PLACE,)} | more
    return call("upsert", start_ms, end_ms, version, **fields)


def judged(*calls: Call, lost: tuple[HostLoss, ...] = ()) -> Verdict:
    return judge(calls, lost, lambda endpoint: not endpoint.startswith("passing"))


def test_a_good_history_is_clean() -> None:
    verdict = judged(
        call("read", 0, 5, None),
        write(10, 20, "v1"),
        call("read", 21, 22, "v1", lease_ms=50, extents=(PLACE,)),
        call("remove", 23, 24, outcome="refused", code=-706),
        call("remove", 80, 90, forced=True),
        call("remove", 91, 92, outcome="refused", code=-704),
        call("put", 100, 110, "v2"),
        call("read", 111, 112, "v2"),
    )
    assert verdict.clean, verdict.violations
    assert (verdict.calls, verdict.keys, verdict.leases_checked) == (8, 1, 1)


def test_an_acknowledged_write_that_is_absent_is_lost() -> None:
    verdict = judged(write(0, 10, "v1"), call("read", 20, 30, None))
    assert (len(verdict.lost), len(verdict.stale)) == (1, 0)


def test_an_older_version_after_a_newer_one_is_stale() -> None:
    verdict = judged(write(0, 10, "v1"), write(20, 30, "v2"), call("read", 40, 50, "v1"))
    assert (len(verdict.lost), len(verdict.stale)) == (0, 1)


def test_a_write_of_unknown_outcome_may_take_effect_late_or_never() -> None:
    unknown = write(0, 10, "v2", outcome="unknown")
    assert judged(write(0, 5, "v1"), unknown, call("read", 20, 30, "v1"), call("read", 40, 50, "v2")).clean
    assert judged(write(0, 5, "v1"), unknown, call("read", 20, 30, "v1")).clean
    assert not judged(unknown, call("read", 20, 30, "v2"), call("read", 40, 50, None)).clean


def test_a_put_succeeds_only_on_an_absent_key() -> None:
    assert not judged(write(0, 10, "v1"), call("put", 20, 30, "v2"), call("read", 31, 32, "v2")).clean


def test_a_version_on_a_killed_storage_host_may_be_lost_but_no_other() -> None:
    lost = (HostLoss("passing:1", 15 * MS, 18 * MS),)
    there, elsewhere = write(0, 10, "v1", extents=(PASSING,)), write(0, 10, "v1")
    assert judged(there, call("read", 20, 30, None), lost=lost).clean
    assert not judged(elsewhere, call("read", 20, 30, None), lost=lost).clean
    after = write(20, 30, "v2", extents=(PASSING,))
    assert not judged(there, after, call("read", 40, 50, None), lost=lost).clean


def test_a_remove_under_a_lease_breaks_it_unless_another_version_was_removed() -> None:
    lease = call("read", 20, 21, "v1", lease_ms=100, extents=(PLACE,))
    removed = call("remove", 50, 60)
    assert len(judged(write(0, 10, "v1"), lease, removed).leases) == 1
    assert judged(write(0, 10, "v1"), lease, call("remove", 50, 60, forced=True)).clean
    assert judged(write(0, 10, "v1"), lease, call("remove", 115, 125)).clean
    elsewhere = Extent("h1:1", 1 << 20, 100)
    assert judged(write(0, 10, "v1"), lease, write(30, 40, "v2", extents=(elsewhere,)), removed).clean


def test_space_under_a_lease_or_of_an_unfinished_put_is_not_given_out() -> None:
    lease = call("read", 20, 21, "v1", lease_ms=100, extents=(PLACE,))
    other = write(50, 60, "v2", key="other", client="d")
    assert len(judged(write(0, 10, "v1"), lease, other).space) == 1
    assert judged(write(0, 10, "v1"), lease, write(130, 140, "v2", key="other")).clean
    unfinished = write(0, 10, "v1", outcome="refused")
    assert len(judged(unfinished, other).space) == 1


def test_wrong_bytes_and_bytes_that_changed_under_a_lease_are_reported() -> None:
    verdict = judged(
        call("read", 0, 1, None, problem="the bytes are not a value of 'k'"),
        call("read", 2, 3, "v", outcome="refused", problem="P2: 'k' under a lease had the bytes of v, then those of w"),
    )
    assert (len(verdict.wrong_bytes), len(verdict.leases)) == (1, 1)


def test_every_byte_of_a_value_names_its_key_and_version() -> None:
    value = value_of("key", "c.1", 300)
    assert version_in("key", value) == "c.1"
    assert version_in("other", value) is None
    for at in (0, 4, 8, 20, 299):
        damaged = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        assert version_in("key", damaged) != "c.1"
