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
from leasehold.wire.client import Client
from leasehold.wire.errors import MasterError

__version__ = "0.1.0"

__all__ = [
    "CallerError",
    "Client",
    "InvalidArgument",
    "LeaseholdError",
    "MasterError",
    "NotHeld",
    "PeerError",
    "SessionLost",
    "SettingError",
    "Unavailable",
    "UnknownOutcome",
    "connect",
]
