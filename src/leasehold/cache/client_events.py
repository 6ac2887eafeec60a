"""What the client's machine is told, and what it wants done. All of it is data."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from leasehold.cache.model import ABSENT, Code, FromAuthority, FromClient, Version

# --- what it is told ---


class Get(Struct, frozen=True):
    """Somebody wants these keys by `deadline_ms`."""

    keys: tuple[bytes, ...]
    waiter: int
    deadline_ms: int


class Put(Struct, frozen=True):
    """Somebody writes (None: deletes)."""

    key: bytes
    value: bytes | None
    waiter: int
    mode: str
    timeout_ms: int
    expect: Version | None = None


class Follow(Struct, frozen=True):
    """Subscribe to a prefix; or no longer, for which nobody waits."""

    prefix: bytes
    waiter: int
    on: bool = True


class FromServer(Struct, frozen=True, gc=False):
    """What came together."""

    messages: list[FromAuthority]


class Lost(Struct, frozen=True):
    """The connection is gone: what was sent and not answered will not be answered."""


class Connected(Struct, frozen=True):
    """There is a (new) connection: ask again."""


class Tick(Struct, frozen=True):
    """Time has passed; see `next_wake_ms`."""


ClientEvent: TypeAlias = Get | Put | Follow | FromServer | Lost | Connected | Tick

# --- what it wants done ---


class Transmit(Struct, frozen=True, gc=False):
    """To the authority, if there is a connection; else it is lost, and a timeout follows."""

    message: FromClient


class Deliver(Struct, frozen=True, gc=False):
    """A value for one who asked."""

    waiter: int
    key: bytes
    value: bytes | None
    version: Version


class Done(Struct, frozen=True):
    """A write took effect, or a subscription stands."""

    waiter: int
    version: Version


class Fail(Struct, frozen=True):
    waiter: int
    code: Code
    message: str
    version: Version = ABSENT


class Notify(Struct, frozen=True):
    """Changes under subscribed prefixes; `missed`: there may have been more."""

    changes: tuple[tuple[bytes, Version], ...]
    missed: bool


class Leave(Struct, frozen=True):
    """Nothing is heard on this connection though it is open: the authority may be stopped. Try the next address."""


ClientEffect: TypeAlias = Transmit | Deliver | Done | Fail | Notify | Leave
