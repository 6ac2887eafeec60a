"""Leasehold keeps things by lease: a lock, a leadership, a cached value, a place in a memory pool."""

from leasehold.base.errors import (
    CallerError,
    InvalidArgument,
    LeaseholdError,
    NotHeld,
    PeerError,
    SessionLost,
    SettingError,
    Unavailable,
    UnknownOutcome,
)
from leasehold.coord.connect import connect

__version__ = "0.1.0"

__all__ = [
    "CallerError",
    "InvalidArgument",
    "LeaseholdError",
    "NotHeld",
    "PeerError",
    "SessionLost",
    "SettingError",
    "Unavailable",
    "UnknownOutcome",
    "connect",
]
