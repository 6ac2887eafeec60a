"""The events that the client's machine handles, and the effects that it returns. All of them are data.

`call` is the number of a call of the client's user, by which its result finds it.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from leasehold.cache.model import ABSENT, Code, FromAuthority, FromClient, Version

# --- events ---


class Get(Struct, frozen=True):
    """Read these keys by `deadline_ms`."""

    keys: tuple[bytes, ...]
    call: int
    deadline_ms: int


class Put(Struct, frozen=True):
    """Write a value (None: delete)."""

    key: bytes
    value: bytes | None
    call: int
    mode: str
    timeout_ms: int
    expect: Version | None = None


class Follow(Struct, frozen=True):
    """Subscribe to a prefix."""

    prefix: bytes
    call: int


class Unfollow(Struct, frozen=True):
    """End a subscription. No call waits for it."""

    prefix: bytes


class FromServer(Struct, frozen=True, gc=False):
    """Messages that arrived together."""

    messages: list[FromAuthority]


class Lost(Struct, frozen=True):
    """The connection was lost: requests that were not answered will not be."""


class Connected(Struct, frozen=True):
    """There is a (new) connection: send requests that were not answered again."""


class Tick(Struct, frozen=True):
    """Time has passed; see `next_wake_ms`."""


ClientEvent: TypeAlias = Get | Put | Follow | Unfollow | FromServer | Lost | Connected | Tick

# --- effects ---


class Transmit(Struct, frozen=True, gc=False):
    """Send to the authority. Without a connection the message is lost, and a timeout follows."""

    message: FromClient


class Deliver(Struct, frozen=True, gc=False):
    """A value for a call."""

    call: int
    key: bytes
    value: bytes | None
    version: Version


class Done(Struct, frozen=True):
    """A write took effect, or a subscription was confirmed."""

    call: int
    version: Version


class Fail(Struct, frozen=True):
    call: int
    code: Code
    message: str
    version: Version = ABSENT


class Notify(Struct, frozen=True):
    """Changes under subscribed prefixes; `missed`: there may have been more."""

    changes: tuple[tuple[bytes, Version], ...]
    missed: bool


class Leave(Struct, frozen=True):
    """The connection is open but silent: the authority may be stopped. Try the next address."""


ClientEffect: TypeAlias = Transmit | Deliver | Done | Fail | Notify | Leave
