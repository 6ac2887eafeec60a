"""What the authority's machine is told, and what it wants done. All of it is data."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from leasehold.cache.model import Drop, FromAuthority, FromClient, Item, Version


class Received(Struct, frozen=True, gc=False):
    """A client's messages that came together."""

    client: str
    messages: list[FromClient]


class Disconnected(Struct, frozen=True):
    """A client's connection is gone. Its leases are not: they end by time."""

    client: str


class Loaded(Struct, frozen=True):
    """The store behind has answered: the value (None: absent) and the token under which it was stored."""

    key: bytes
    value: bytes | None
    version: Version


class LoadFailed(Struct, frozen=True):
    key: bytes
    reason: str


class Stored(Struct, frozen=True):
    """The store behind has the value of this token, durably."""

    key: bytes
    token: Version


class StoreUnknown(Struct, frozen=True):
    """The store behind did not say. The value may be there, may come later, or never."""

    key: bytes
    token: Version
    reason: str


class StoreRefused(Struct, frozen=True):
    """The store behind knows a newer token: another authority is in office."""

    key: bytes
    token: Version


class Right(Struct, frozen=True):
    """This authority may answer until then (on its own clock); told again whenever it is extended."""

    until_ms: int


class Tick(Struct, frozen=True):
    """Time has passed; see `next_wake_ms`."""


class Stop(Struct, frozen=True):
    """No more leases and no more writes; everybody is told to drop."""


Event: TypeAlias = (
    Received | Disconnected | Loaded | LoadFailed | Stored | StoreUnknown | StoreRefused | Right | Tick | Stop
)


class Send(Struct, frozen=True, gc=False):
    """To one client. Lost with its connection: nothing depends on its arrival."""

    client: str
    message: FromAuthority


class CallBack(Struct, frozen=True, gc=False):
    """To each of these, as `Send`: they hold what is about to be written."""

    holders: list[str]
    drop: Drop


class Refilled(Struct, frozen=True, gc=False):
    """To each of these, as `Send`, with the request of each by which it asked: what it acknowledged stands anew."""

    asked: dict[str, int]
    item: Item


class Load(Struct, frozen=True):
    key: bytes


class Store(Struct, frozen=True):
    """Write behind, if no newer token stands there. The writer is answered only after `Stored`."""

    key: bytes
    value: bytes | None
    token: Version


class SettleTerm(Struct, frozen=True):
    """One old maximum term has passed: the durable one may be lowered to the configured one."""


class MarkClean(Struct, frozen=True):
    """No lease is live and none will be given: the next start need not wait."""


class Deposed(Struct, frozen=True):
    """Another authority is in office: close every connection, answer nothing more."""

    reason: str


Effect: TypeAlias = Send | CallBack | Refilled | Load | Store | SettleTerm | MarkClean | Deposed
