"""The survey of the pool agrees with the index, however small its steps are, and while the index changes."""

from __future__ import annotations

import random

import pytest

from leasehold.index.index import Index
from leasehold.index.model import PutConfig, SegmentSpec
from leasehold.index.settings import IndexSettings
from leasehold.index.survey import KINDS, PoolSurvey

MIB = 1 << 20
CLIENT, TENANT = b"c" * 16, b"default"


def filled_index() -> Index:
    index = Index(IndexSettings(), random.Random(1).randrange)
    index.begin(0, 1)
    for number in (1, 2):
        spec = SegmentSpec(bytes([number]) * 16, f"s{number}", number << 40, 4 * MIB, f"host{number}:1", "tcp")
        assert index.mounts.mount(0, CLIENT, spec).code == 0
    for number in range(40):
        config = PutConfig(hard_pin=number % 4 == 0)
        assert index.puts.start(0, CLIENT, TENANT, b"k%d" % number, 64 << 10, config).code == 0
        if number < 30:
            assert index.puts.end(0, CLIENT, TENANT, b"k%d" % number, 4, None).code == 0
    return index


def surveyed(index: Index, budget_blocks: int) -> dict[str, int]:
    survey = PoolSurvey()
    for _ in range(200):
        survey.step(index, budget_blocks)
        if survey.result:
            break
    assert [use.name for use in survey.result] == ["s1", "s2"]
    assert all(use.total_bytes == 4 * MIB and use.used_bytes == sum(use.parts_bytes.values()) for use in survey.result)
    return {kind: sum(use.parts_bytes[kind] for use in survey.result) for kind in KINDS}


@pytest.mark.parametrize("budget_blocks", [1, 3, 1_000])
def test_every_byte_has_one_kind(budget_blocks: int) -> None:
    index = filled_index()
    found = surveyed(index, budget_blocks)
    assert sum(found.values()) == index.space.used_bytes
    assert found["writing"] == 10 * (64 << 10)
    assert found["pinned"] == 8 * (64 << 10)
    index.reads.get(1_000, TENANT, b"k1")
    assert surveyed(index, budget_blocks)["leased"] == 64 << 10


def test_segments_that_leave_during_the_walk_are_left_out() -> None:
    index, survey = filled_index(), PoolSurvey()
    survey.step(index, 2)
    assert index.mounts.unmount(0, CLIENT, b"\x01" * 16).code == 0
    for _ in range(60):
        survey.step(index, 2)
    assert [use.name for use in survey.result] == ["s2"]
    assert index.mounts.unmount(0, CLIENT, b"\x02" * 16).code == 0
    survey.step(index, 1_000)
    survey.step(index, 1_000)
    assert survey.result == ()
