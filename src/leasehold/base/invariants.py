"""Invariants are code and stay on: never `assert`, which vanishes under `-O`."""

from __future__ import annotations

from leasehold.base.errors import InvariantBroken


def ensure(condition: object, promise: str, *facts: object) -> None:
    """Raise `InvariantBroken` unless `condition` holds; `promise` names what is broken, `facts` shows how."""
    if not condition:
        detail = ": " + ", ".join(map(repr, facts)) if facts else ""
        raise InvariantBroken(promise + detail)
