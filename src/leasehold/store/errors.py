"""Failures of a store on this machine, in addition to the errors of every store."""

from __future__ import annotations

from leasehold.base.errors import CallerError, PeerError, Unavailable


class StoreClosed(Unavailable):
    """The store in this process was closed."""


class StoreInUse(CallerError):
    """Another process has this store's directory open."""


class StoreDamaged(PeerError):
    """A file of the store is damaged. Nothing was changed: restore a snapshot, or remove the file."""


class StoreFailed(Unavailable):
    """A write to the disk failed. Data on disk is intact, but this process must not use state that is not on disk."""
