"""What a recipe can answer besides success. They stand in the one tree of `leasehold.base.errors`:

CallerError
├── NotHeld
│   ├── LockReleased     unlock of a lock that is not (any longer) held
│   ├── NotLeader        proclaim without leadership
│   └── SessionLost
│       └── PlaceLost        the own key was deleted by somebody while the session lives on
├── KeyExists        hold of a barrier that is held already
└── TooManyClients   a double barrier that is full
PeerError
├── Locked           try_lock: somebody else has it
├── NoLeader         nobody leads
├── WaitTimeout      the time given ran out before the turn came; also a TimeoutError
└── TooMuchConflict  a transaction that was overtaken on every attempt
"""

from __future__ import annotations

from leasehold.base.errors import CallerError, NotHeld, PeerError, SessionLost


class LockReleased(NotHeld):
    """The lock has already been released, or was never held."""


class NotLeader(NotHeld):
    """This election object does not lead: campaign first."""


class PlaceLost(SessionLost):
    """The own key was deleted by somebody else: the place in the queue, or the hold, is gone. Start again."""


class KeyExists(CallerError):
    """The key is there already."""


class TooManyClients(CallerError):
    """As many clients as the double barrier takes have entered already."""


class Locked(PeerError):
    """Another session holds the lock; nothing of ours was left behind."""


class NoLeader(PeerError):
    """Nobody leads at the moment: ask again, or observe."""


class WaitTimeout(PeerError, TimeoutError):
    """The time given ran out before the turn came; nothing of ours was left behind."""


class TooMuchConflict(PeerError):
    """Every attempt of a transaction was overtaken by another writer; nothing was written. Try again later."""
