"""What can go wrong between a pool's client and its storage hosts, hung into the one error tree."""

from __future__ import annotations

from leasehold.base.errors import NotHeld, PeerError


class TransferFailed(PeerError):
    """A storage host could not be reached, or refused: the bytes were not moved."""


class BytesDamaged(PeerError):
    """What was read is not what was written: every replica failed its checksum."""


class LeaseExpired(NotHeld):
    """The read took longer than its lease.

    The bytes may be somebody else's by now, so they are not returned. Try again.
    """
