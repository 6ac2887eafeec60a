"""Errors between a pool's client and its storage hosts, subclasses of `LeaseholdError`."""

from __future__ import annotations

from leasehold.base.errors import NotHeld, PeerError


class TransferFailed(PeerError):
    """A storage host could not be reached, or refused: no bytes were transferred."""


class BytesDamaged(PeerError):
    """Every replica failed its checksum."""


class LeaseExpired(NotHeld):
    """The read took longer than its lease.

    The space may belong to another object by now, so the bytes are not returned. Try again.
    """
