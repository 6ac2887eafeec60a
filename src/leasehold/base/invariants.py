"""Invariant checks that stay on in production, unlike `assert`, which `python -O` removes."""

from __future__ import annotations

from leasehold.base.errors import InvariantBroken


def ensure(condition: object, promise: str, *facts: object) -> None:
    """Raise `InvariantBroken` unless `condition` holds. `promise` names the invariant, `facts` are the values seen."""
    if not condition:
        detail = ": " + ", ".join(map(repr, facts)) if facts else ""
        raise InvariantBroken(promise + detail)
