"""Sessions, locks, elections, transactions and recipes on a coordination store.

Compatible with Go's `client/v3/concurrency` and `etcdctl lock` / `elect`: same keys, same order.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # type checkers know it by this name; `typing` itself takes time to load
if TYPE_CHECKING:
    from leasehold.base.errors import NotHeld, SessionLost
    from leasehold.concurrency.barrier import Barrier
    from leasehold.concurrency.deadline import SessionState
    from leasehold.concurrency.double_barrier import DoubleBarrier
    from leasehold.concurrency.election import Election, Leader
    from leasehold.concurrency.errors import (
        KeyExists,
        Locked,
        LockReleased,
        NoLeader,
        NotLeader,
        PlaceLost,
        TooManyClients,
        TooMuchConflict,
        WaitTimeout,
    )
    from leasehold.concurrency.held import Held
    from leasehold.concurrency.mutex import Mutex
    from leasehold.concurrency.priority_queue import PriorityQueue
    from leasehold.concurrency.queue import Queue
    from leasehold.concurrency.rwlock import RWLock
    from leasehold.concurrency.semaphore import Semaphore
    from leasehold.concurrency.session import Session
    from leasehold.concurrency.transaction import Isolation, Stm, StmResult, stm

__all__ = [
    "Barrier",
    "DoubleBarrier",
    "Election",
    "Held",
    "Isolation",
    "KeyExists",
    "Leader",
    "LockReleased",
    "Locked",
    "Mutex",
    "NoLeader",
    "NotHeld",
    "NotLeader",
    "PlaceLost",
    "PriorityQueue",
    "Queue",
    "RWLock",
    "Semaphore",
    "Session",
    "SessionLost",
    "SessionState",
    "Stm",
    "StmResult",
    "TooManyClients",
    "TooMuchConflict",
    "WaitTimeout",
    "stm",
]

# name -> module. Modules are loaded when used: a program that needs a lock loads neither transactions nor queues.
_MODULES = {
    "Barrier": "leasehold.concurrency.barrier",
    "DoubleBarrier": "leasehold.concurrency.double_barrier",
    "Election": "leasehold.concurrency.election",
    "Held": "leasehold.concurrency.held",
    "Isolation": "leasehold.concurrency.transaction",
    "KeyExists": "leasehold.concurrency.errors",
    "Leader": "leasehold.concurrency.election",
    "LockReleased": "leasehold.concurrency.errors",
    "Locked": "leasehold.concurrency.errors",
    "Mutex": "leasehold.concurrency.mutex",
    "NoLeader": "leasehold.concurrency.errors",
    "NotHeld": "leasehold.base.errors",
    "NotLeader": "leasehold.concurrency.errors",
    "PlaceLost": "leasehold.concurrency.errors",
    "PriorityQueue": "leasehold.concurrency.priority_queue",
    "Queue": "leasehold.concurrency.queue",
    "RWLock": "leasehold.concurrency.rwlock",
    "Semaphore": "leasehold.concurrency.semaphore",
    "Session": "leasehold.concurrency.session",
    "SessionLost": "leasehold.base.errors",
    "SessionState": "leasehold.concurrency.deadline",
    "Stm": "leasehold.concurrency.transaction",
    "StmResult": "leasehold.concurrency.transaction",
    "TooManyClients": "leasehold.concurrency.errors",
    "TooMuchConflict": "leasehold.concurrency.errors",
    "WaitTimeout": "leasehold.concurrency.errors",
    "stm": "leasehold.concurrency.transaction",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'leasehold.concurrency' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
