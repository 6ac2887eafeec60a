"""Errors of the recipes, within the tree of `leasehold.base.errors`:

CallerError
├── NotHeld
│   ├── LockReleased     unlock of a lock that is not held (any more)
│   ├── NotLeader        proclaim without leadership
│   └── SessionLost
│       └── PlaceLost        another client deleted the own key while the session is alive
├── KeyExists        hold of a barrier that is closed already
└── TooManyClients   a double barrier that is full
PeerError
├── Locked           try_lock: another client holds it
├── NoLeader         there is no leader
├── WaitTimeout      the time ran out before the turn came; also a TimeoutError
└── TooMuchConflict  a transaction that met a conflict in every attempt
"""

from __future__ import annotations

from leasehold.base.errors import CallerError, NotHeld, PeerError, SessionLost


class LockReleased(NotHeld):
    """The lock has already been released, or was never held."""


class NotLeader(NotHeld):
    """This election object does not lead: campaign first."""


class PlaceLost(SessionLost):
    """Another client deleted the own key: the place in the queue, or the lock, is lost. Start again."""


class KeyExists(CallerError):
    """The key exists already."""


class TooManyClients(CallerError):
    """The double barrier is full."""


class Locked(PeerError):
    """Another session holds the lock. Nothing was left behind in the store."""


class NoLeader(PeerError):
    """There is no leader now: try again, or observe."""


class WaitTimeout(PeerError, TimeoutError):
    """The time ran out before the turn came. Nothing was left behind in the store."""


class TooMuchConflict(PeerError):
    """Every attempt of a transaction met a conflict. Nothing was written; try again later."""
