"""Leasehold keeps things by lease: a lock, a leadership, a cached value, a place in a memory pool.

    leasehold.connect(url)        a coordination store: a real etcd, a directory, or memory; the same interface to each
    leasehold.concurrency         Session, Mutex, Election, STM and recipes on it, as Go's package has them
    leasehold.cache               client caches that are never stale
    leasehold.pool                bytes into a memory pool and out again
    leasehold.Client              every call of a master of Mooncake's clients
    leasehold.sync                the same without asyncio (so leasehold.concurrency.sync, SyncClient, SyncPool)
    leasehold.testing             real clusters and faults as verbs, for your own tests

Errors derive from `LeaseholdError`: the caller's fault (`CallerError`), the peer's (`PeerError`), or `UnknownOutcome`
(sent and not answered).
"""

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
