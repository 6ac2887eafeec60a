"""The comparison of two checkouts: what counts as slower, and where the old code comes from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.compare import CannotCompare, Side, base_side, judge, verdicts
from bench.result import ROOT
from bench.rows import PER_SECOND, Row


def rows(values: list[float], unit: str = "us") -> list[Row]:
    return [Row("calls", "get", value, unit, unit == PER_SECOND) for value in values]


@pytest.mark.parametrize(
    ("base", "new", "unit", "slower"),
    [
        ([10.0, 10.1, 10.2], [10.4, 10.5, 10.6], "us", False),  # within the limit
        ([10.0, 10.1, 10.2], [11.0, 11.1, 11.2], "us", True),
        ([10.0, 10.1, 12.0], [11.0, 11.1, 11.2], "us", False),  # the base itself had a slower round
        ([100.0, 101.0, 102.0], [90.0, 91.0, 92.0], PER_SECOND, True),  # fewer a second
        ([100.0, 101.0, 102.0], [120.0, 121.0, 122.0], PER_SECOND, False),
        ([574.0, 574.1, 574.2], [580.0, 580.0, 580.0], "bytes", True),  # 1 % more memory is more
        ([574.0, 574.1, 574.2], [574.3, 574.3, 574.3], "bytes", False),
    ],
)
def test_slower_is_beyond_limit_and_noise(base: list[float], new: list[float], unit: str, slower: bool) -> None:
    assert judge(rows(base, unit), rows(new, unit), 0.05).slower is slower


def test_the_worse_direction_depends_on_the_row() -> None:
    assert judge(rows([10.0]), rows([20.0]), 0.05).slowdown == 2.0
    assert judge(rows([10.0], PER_SECOND), rows([20.0], PER_SECOND), 0.05).slowdown == 0.5


def test_a_removed_row_is_an_error_and_an_added_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    fewer = {("calls", "get"): rows([1.0])}
    more = {("calls", "get"): rows([1.0]), ("calls", "put"): rows([1.0])}
    with pytest.raises(CannotCompare, match="only the base has: calls: put"):
        verdicts(more, fewer, 0.05)
    assert [each.row for each in verdicts(fewer, more, 0.05)] == ["get"]
    assert "calls: put" in capsys.readouterr().err


def test_a_commit_is_unpacked_and_imported_from_there() -> None:
    with base_side("HEAD", own_venv=False) as base:
        base.check()
        assert base.folder != ROOT
        assert (base.folder / "bench" / "bench_index.py").exists()
    assert not base.folder.exists()


def test_a_folder_without_the_package_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CannotCompare, match="is imported from"):
        Side("base", tmp_path, sys.executable).check()


def test_an_unknown_commit_is_an_error() -> None:
    with (
        pytest.raises(CannotCompare, match='"no-such-commit" is neither a folder nor a commit'),
        base_side("no-such-commit", own_venv=False),
    ):
        pass


def test_a_failing_benchmark_stops_the_comparison(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "bench_calls.py").write_text("raise SystemExit('no server')")
    with base_side(str(tmp_path), own_venv=False) as base, pytest.raises(CannotCompare, match="no server"):
        base.run("calls", tmp_path / "out.json")
    with base_side(str(tmp_path), own_venv=False) as base, pytest.raises(CannotCompare, match="writes no JSON"):
        base.run("cache", tmp_path / "out.json")
