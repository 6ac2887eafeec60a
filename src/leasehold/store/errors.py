"""What can go wrong with a store on this machine, besides what any store may answer."""

from __future__ import annotations

from leasehold.base.errors import CallerError, PeerError, Unavailable


class StoreClosed(Unavailable):
    """The store in this process has been closed."""


class StoreInUse(CallerError):
    """Another process has this store's directory open."""


class StoreDamaged(PeerError):
    """A file of the store is not as it was written. Nothing was changed: restore a snapshot, or take the file away."""


class StoreFailed(Unavailable):
    """The disk refused a write. What is on it is intact; this process must not go on with what is not on it."""
