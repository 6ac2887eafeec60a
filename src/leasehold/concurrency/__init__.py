"""Sessions, locks, elections, transactions and recipes on a coordination store.

Compatible with Go's `client/v3/concurrency` and `etcdctl lock` / `elect`: same keys, same order.
"""

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
from leasehold.concurrency.stm import Isolation, Stm, StmResult, stm

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
