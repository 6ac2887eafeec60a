"""All errors of Leasehold, in one tree. The kind of an error decides what the caller may do next:

    LeaseholdError
    ├── CallerError               your fault: fix the call, repeating it changes nothing
    │   ├── SettingError              a setting is unknown, malformed or out of bounds
    │   │   └── ResourceUnavailable       the port, directory or memory it names is not available now
    │   ├── InvalidArgument           a parameter that can never be valid
    │   └── NotHeld                   the caller does not hold this lock, leadership or lease (any longer)
    │       └── SessionLost               because its session expired, or may have expired
    ├── PeerError                 their fault: the peer refused, failed or was unreachable; nothing was done
    │   ├── Unavailable               no peer answered in time; safe to repeat
    │   └── Refused                   a peer answered with an error
    │       └── NotFound                  the named thing does not exist there
    ├── UnknownOutcome            the request was sent and not answered: it may or may not have happened
    └── InvariantBroken           a bug in Leasehold

Every package derives its own errors from these. A message states what happened, why, and what to do next.
"""

from __future__ import annotations


class LeaseholdError(Exception):
    """Base class of every error that Leasehold raises deliberately."""


class CallerError(LeaseholdError):
    """The call itself is wrong: repeating it changes nothing."""


class SettingError(CallerError):
    """A setting is unknown, malformed or out of bounds. The message names it and where it was set."""


class ResourceUnavailable(SettingError):
    """The resource that a setting names is not available now: a port or directory in use, a full disk.

    The setting may be correct, so a later start may succeed: the exit code is 1 instead of 2.
    """


class InvalidArgument(CallerError, ValueError):
    """A parameter that can never be valid."""


class NotHeld(CallerError):
    """The caller does not hold this lock, leadership or lease (any longer)."""


class SessionLost(NotHeld):
    """The session expired or may have expired: stop all work that depends on it, then open a new one."""


class PeerError(LeaseholdError):
    """A peer refused, failed or was unreachable. Nothing was done."""


class Unavailable(PeerError):
    """No peer answered in time. Nothing was done, so repeating is safe."""


class Refused(PeerError):
    """A peer answered with an error."""


class NotFound(Refused):
    """The named object, host or node does not exist there."""


class UnknownOutcome(LeaseholdError):
    """The request was sent and not answered: it may or may not have happened. Read before repeating it."""


class InvariantBroken(LeaseholdError):
    """An invariant does not hold, which is a bug. The process must not continue with this state."""
