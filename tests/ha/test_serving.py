"""The entry point for client commands: every record that a command decides reaches the journal."""

from __future__ import annotations

import pytest

from leasehold.base.codes import Code
from leasehold.ha.outbox import Outbox
from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.index.replies import Acknowledged, View
from leasehold.index.settings import IndexSettings

TENANT = b"default"


class Scene:
    """An entry point over a fresh index; `reported` counts the reports to the journal."""

    def __init__(self) -> None:
        self.reported = 0
        self.serving = Serving(self.new_index(), Outbox.always_open())
        self.serving.report_to(self._on_decided)

    @staticmethod
    def new_index() -> Index:
        index = Index(IndexSettings(), lambda _: 0)
        index.begin(0, 1)
        return index

    def _on_decided(self) -> None:
        self.reported += 1


def remove(index: Index, now_ms: int, key: bytes) -> Acknowledged:
    return index.removes.remove(now_ms, TENANT, key, False)


def look(index: Index, now_ms: int) -> View[int]:
    return View(now_ms, index.log.last_n)


def test_a_command_that_decides_a_record_is_reported_and_a_read_is_not() -> None:
    scene = Scene()
    assert scene.serving.execute(remove, b"a").code is Code.NOT_FOUND  # by a record: a standby may still have it
    assert scene.reported == 1
    scene.serving.execute(look)
    assert scene.reported == 1


def test_a_rebuilt_index_that_reaches_the_same_record_is_reported_too() -> None:
    """After a rebuild record numbers are used again: the number of the last report says nothing."""
    scene = Scene()
    scene.serving.execute(remove, b"a")
    scene.serving.update(scene.new_index(), 0)
    scene.serving.execute(remove, b"b")
    assert scene.reported == 2


def test_records_decided_before_an_error_are_reported() -> None:
    scene = Scene()

    def fails(index: Index, now_ms: int) -> View[None]:
        remove(index, now_ms, b"a")
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        scene.serving.execute(fails)
    assert scene.reported == 1


def test_commands_of_one_burst_run_at_the_time_of_its_lease_check() -> None:
    scene = Scene()
    scene.serving.update(scene.serving.index, 100)
    assert scene.serving.may_serve(1_500)
    assert scene.serving.execute(look).value == 1_400
