"""The one error tree. Three kinds of failure, because they decide what a caller may do next:

    LeaseholdError
    ├── CallerError       your fault: fix the call, repeating it changes nothing
    │   ├── SettingError      a setting that is unknown, malformed or out of bounds
    │   │   └── CannotBeHad       what it names cannot be had now: a port, a directory
    │   ├── InvalidArgument   a parameter that can never be right
    │   └── NotHeld           a lock, leadership or lease that the caller does not (any longer) hold
    │       └── SessionLost       because its session has ended, or can no longer be proven alive
    ├── PeerError         their fault: the peer refused, failed or could not be reached; nothing was done
    │   ├── Unavailable       no peer could be reached in time; safe to repeat
    │   └── Refused           a peer answered with an error
    └── UnknownOutcome    it was sent and never answered: it may or may not have happened

Rooms derive their own errors from these. Every message says what to do next.
"""

from __future__ import annotations


class LeaseholdError(Exception):
    """The root of everything that Leasehold raises on purpose."""


class CallerError(LeaseholdError):
    """The call itself is at fault: repeating it changes nothing."""


class SettingError(CallerError):
    """A setting is unknown, malformed or out of bounds; the message names it and where it came from."""


class ResourceUnavailable(SettingError):
    """What a setting names cannot be had at this moment: a port or a directory that another process has, a full disk.

    The setting may be right, so starting again later may help: a supervisor is told so by the exit code.
    """


class InvalidArgument(CallerError, ValueError):
    """A parameter that can never be right."""


class NotHeld(CallerError):
    """The caller acts on a lock, a leadership or a lease that it does not (any longer) hold."""


class SessionLost(NotHeld):
    """The session has ended or can no longer be proven alive: stop what depends on it, open a new one."""


class PeerError(LeaseholdError):
    """A peer refused, failed, or could not be reached. Nothing was done."""


class Unavailable(PeerError):
    """No peer could be reached in time; nothing was done, repeating is safe."""


class Refused(PeerError):
    """A peer answered with an error of its own."""


class UnknownOutcome(LeaseholdError):
    """It was sent and not answered: it may or may not have happened. Read before you repeat."""


class InvariantBroken(LeaseholdError):
    """A promise of ours does not hold: a bug. The process must not go on with this state."""
