"""Sessions, locks, elections, transactions and recipes on a coordination store.

Compatible with Go's `client/v3/concurrency` and `etcdctl lock` / `elect`: same keys, same order.
"""

from leasehold.base.errors import NotHeld, SessionLost
from leasehold.concurrency.deadline import SessionState
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
from leasehold.concurrency.session import Session

__all__ = [
    "Held",
    "KeyExists",
    "LockReleased",
    "Locked",
    "Mutex",
    "NoLeader",
    "NotHeld",
    "NotLeader",
    "PlaceLost",
    "Session",
    "SessionLost",
    "SessionState",
    "TooManyClients",
    "TooMuchConflict",
    "WaitTimeout",
]
