"""Errors of the cache.

CallerError
└── Conflict        compare-and-set: the key has another version; read it again
PeerError
├── Busy            mode `fail`: a lease is out; nothing was done
├── Expired         the write could not begin in time; nothing was done
└── Unavailable
    └── NotServing  this authority does not hold the leader lease; nothing was done
UnknownOutcome      sent and not answered, or the store did not answer
"""

from __future__ import annotations

from leasehold.base.errors import CallerError, InvalidArgument, LeaseholdError, PeerError, Unavailable, UnknownOutcome
from leasehold.cache.model import ABSENT, Code, Version


class Conflict(CallerError):
    """The key has another version than expected: `current` (`ABSENT` if the key is absent)."""

    def __init__(self, message: str, current: Version) -> None:
        super().__init__(message)
        self.current = current


class Busy(PeerError):
    """In mode `fail`: a client may hold a lease on the old value. Nothing was done."""


class Expired(PeerError):
    """The write's time ran out before it took effect. Nothing was done; repeating is safe."""


class NotServing(Unavailable):
    """This authority does not hold the leader lease, so it must not answer. Nothing was done."""


class TokenRefused(PeerError):
    """The store has seen a newer epoch or version: another authority has begun a term."""


def error_of(code: Code, message: str, version: Version = ABSENT) -> LeaseholdError:
    """The exception for an answer that is not OK."""
    match code:
        case Code.CONFLICT:
            return Conflict(message, version)
        case Code.BUSY:
            return Busy(message)
        case Code.EXPIRED:
            return Expired(message)
        case Code.NOT_SERVING:
            return NotServing(message)
        case Code.UNKNOWN:
            return UnknownOutcome(message)
        case Code.BAD_REQUEST:
            return InvalidArgument(message)
        case _:
            return Unavailable(message)
