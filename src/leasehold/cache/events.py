"""The events that the authority's machine handles, and the effects that it returns. All of them are data."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from leasehold.cache.model import Drop, FromAuthority, FromClient, Item, Version

# --- events ---


class Received(Struct, frozen=True, gc=False):
    """Messages that arrived together from one client."""

    client: str
    messages: list[FromClient]


class Disconnected(Struct, frozen=True):
    """A client's connection was lost. Its leases stay valid until they expire."""

    client: str


class Loaded(Struct, frozen=True):
    """The store's answer to `Load`: the value (None: absent) and the token under which it was stored."""

    key: bytes
    value: bytes | None
    version: Version


class LoadFailed(Struct, frozen=True):
    key: bytes
    reason: str


class Stored(Struct, frozen=True):
    """The store has the value of this token, durably."""

    key: bytes
    token: Version


class StoreUnknown(Struct, frozen=True):
    """The store did not answer. The value may be there, may arrive later, or never."""

    key: bytes
    token: Version
    reason: str


class StoreRefused(Struct, frozen=True):
    """The store has seen a newer token: another authority has begun a term."""

    key: bytes
    token: Version


class LeaderLease(Struct, frozen=True):
    """This authority may answer until then, on its own clock. Repeated whenever the lease is extended."""

    until_ms: int


class Tick(Struct, frozen=True):
    """Time has passed; see `next_wake_ms`."""


class Stop(Struct, frozen=True):
    """Grant no more leases, accept no more writes, and have every client drop its copies."""


Event: TypeAlias = (
    Received | Disconnected | Loaded | LoadFailed | Stored | StoreUnknown | StoreRefused | LeaderLease | Tick | Stop
)

# --- effects ---


class Send(Struct, frozen=True, gc=False):
    """Send to one client. The message is lost with the connection: nothing depends on its arrival."""

    client: str
    message: FromAuthority


class CallBack(Struct, frozen=True, gc=False):
    """Send `drop` to each of these, as with `Send`: they hold a lease on a key that is about to be written."""

    holders: list[str]
    drop: Drop


class Refilled(Struct, frozen=True, gc=False):
    """Send the key's new value to each of these clients, as with `Send`, as the answer to its request."""

    requests: dict[str, int]
    item: Item


class Load(Struct, frozen=True):
    """Read from the store; `Loaded` or `LoadFailed` follows."""

    key: bytes


class Store(Struct, frozen=True):
    """Write to the store unless it has a newer token. The writer is answered only after `Stored`."""

    key: bytes
    value: bytes | None
    token: Version


class SettleTerm(Struct, frozen=True):
    """Every lease of a predecessor has expired: lower the store's maximum lease term to the configured one."""


class RecordCleanStop(Struct, frozen=True):
    """No lease is valid and none will be granted: record it, so that the next start need not wait."""


class Deposed(Struct, frozen=True):
    """Another authority has begun a term: close every connection and answer nothing more."""

    reason: str


Effect: TypeAlias = Send | CallBack | Refilled | Load | Store | SettleTerm | RecordCleanStop | Deposed
