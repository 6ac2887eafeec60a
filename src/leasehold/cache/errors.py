"""How calls of the cache fail.

CallerError
└── Conflict        compare-and-set: another version stands; read again
PeerError
├── Busy            mode `fail`: a lease is out; nothing was done
├── Expired         the write could not begin in time; nothing was done
└── Unavailable
    └── NotServing  this authority may not (yet, or any longer) answer; nothing was done
UnknownOutcome      sent and not answered, or the store behind did not say
"""

from __future__ import annotations

from leasehold.base.errors import CallerError, InvalidArgument, LeaseholdError, PeerError, Unavailable, UnknownOutcome
from leasehold.cache.model import ABSENT, Code, Version


class Conflict(CallerError):
    """Another version stands; `current` is its number (`ABSENT` if the key is not there)."""

    def __init__(self, message: str, current: Version) -> None:
        super().__init__(message)
        self.current = current


class Busy(PeerError):
    """In mode `fail`: somebody may hold a lease on the old value. Nothing was done."""


class Expired(PeerError):
    """The write's time ran out before it took effect. Nothing was done; repeating is safe."""


class NotServing(Unavailable):
    """This authority may not answer: it is not the one in office. Nothing was done."""


class TokenRefused(PeerError):
    """The store behind has seen a newer epoch or version: this authority is no longer the one in office."""


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
