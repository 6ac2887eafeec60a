"""Leasehold keeps things by lease: a lock, a leadership, a cached value, a place in a memory pool."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # type checkers know it by this name; `typing` itself takes time to load
if TYPE_CHECKING:
    from leasehold.base.errors import (
        CallerError,
        InvalidArgument,
        LeaseholdError,
        NotHeld,
        PeerError,
        SessionLost,
        SettingError,
        Unavailable,
        UnknownOutcome,
    )
    from leasehold.coord.connect import connect
    from leasehold.wire.client import Client
    from leasehold.wire.errors import MasterError

__version__ = "0.1.0"

__all__ = [
    "CallerError",
    "Client",
    "InvalidArgument",
    "LeaseholdError",
    "MasterError",
    "NotHeld",
    "PeerError",
    "SessionLost",
    "SettingError",
    "Unavailable",
    "UnknownOutcome",
    "connect",
]

# Loaded when used: a program that wants a lock need not load the data plane, nor the command line either of them.
_ELSEWHERE = {
    "Client": "leasehold.wire.client",
    "MasterError": "leasehold.wire.errors",
    "connect": "leasehold.coord.connect",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'leasehold' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_ELSEWHERE.get(name, "leasehold.base.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
