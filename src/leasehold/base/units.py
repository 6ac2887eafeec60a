"""Parse and format durations, sizes, booleans, counts and ratios as people write them."""

from __future__ import annotations

import re

_MS_PER = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES_PER = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_QUANTITY = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def _quantity(text: str, per_unit: dict[str, float], example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in per_unit:
        raise ValueError(f"not a number with a unit; write for example {example}")
    return float(match[1]) * per_unit[match[2].lower()]


def parse_duration_ms(text: str) -> int:
    """`"1.5s"` -> 1500. A number without a unit is rejected: it could mean seconds or milliseconds."""
    return round(_quantity(text, dict(_MS_PER), "10s, 500ms or 5m"))


def parse_bytes(text: str) -> int:
    """`"1GiB"` -> 1073741824. A bare number is bytes."""
    return round(_quantity(text, dict(_BYTES_PER), "64MiB or 1GiB"))


def parse_bool(text: str) -> bool:
    folded = text.strip().lower()
    if folded in ("true", "yes", "on", "1"):
        return True
    if folded in ("false", "no", "off", "0"):
        return False
    raise ValueError("not a boolean; write true or false")


def parse_count(text: str) -> int:
    """`"10_000"` -> 10000."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("not a whole number; write for example 1000") from None


def parse_ratio(text: str) -> float:
    """`"0.9"` -> 0.9. A percentage is rejected: 5 and 5 % would be easy to confuse."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a fraction; write for example 0.9") from None


def format_duration_ms(value_ms: int) -> str:
    """1500 -> `"1.5s"`: the largest unit that divides it, else seconds or milliseconds."""
    for unit, per in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if value_ms and value_ms % per == 0:
            return f"{value_ms // per}{unit}"
    if abs(value_ms) >= 1_000:
        return f"{value_ms / 1_000:g}s"
    return f"{value_ms}ms"


def format_bytes(value: int) -> str:
    for unit, per in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= per:
            return f"{value / per:.4g}{unit}"
    return f"{value}B"
