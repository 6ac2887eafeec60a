"""Durations and sizes, as people write them."""

from __future__ import annotations

import pytest

from leasehold.base.units import format_bytes, format_duration_ms, parse_bool, parse_bytes, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "value"), [("10s", 10_000), ("1.5s", 1_500), ("250 ms", 250), ("2m", 120_000), ("1h", 3_600_000)]
)
def test_durations(text: str, value: int) -> None:
    assert parse_duration_ms(text) == value
    assert parse_duration_ms(format_duration_ms(value)) == value


@pytest.mark.parametrize("text", ["10", "", "s", "10 parsecs", "1e3s"])
def test_a_duration_without_a_known_unit_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a number with a unit"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("512", 512), ("64KiB", 65_536), ("1GiB", 2**30), ("1.5mb", 1_500_000)]
)
def test_sizes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


def test_sizes_are_written_in_the_largest_unit() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 3 * 2**29)] == ["0B", "1023B", "1KiB", "1.5GiB"]


def test_booleans() -> None:
    assert parse_bool("Yes") is True
    assert parse_bool("off") is False
    with pytest.raises(ValueError, match="true or false"):
        parse_bool("maybe")
