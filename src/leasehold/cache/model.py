"""What crosses between a cache client and its authority, and what both sides name alike.

Only durations cross: a client counts its lease from when it *sent* the request that was answered.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct

Mode: TypeAlias = Literal["callback", "wait", "fail"]
MODES: tuple[Mode, ...] = ("callback", "wait", "fail")


class Version(Struct, frozen=True, order=True, array_like=True, gc=False):
    """One counter for all keys of an authority, never restarted: epochs only grow, and `n` within one."""

    epoch: int
    n: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.n}"


ABSENT = Version(0, 0)


class Code(StrEnum):
    """How a request ended. What was answered with any but OK and UNKNOWN has changed nothing."""

    OK = "ok"
    CONFLICT = "conflict"
    BUSY = "busy"
    NOT_SERVING = "not_serving"
    UNAVAILABLE = "unavailable"
    EXPIRED = "expired"
    UNKNOWN = "unknown"
    BAD_REQUEST = "bad_request"


# --- from a client ---


class Hello(Struct, frozen=True, array_like=True, gc=False, tag=1):
    """The first message of a connection: who speaks. An identity is never used by two processes."""

    client: str


class Ask(Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Read these keys. `hits` are the answers given from memory since the key was last asked for."""

    seq: int
    keys: tuple[bytes, ...]
    hits: tuple[int, ...] = ()


class Write(Struct, frozen=True, array_like=True, gc=False, tag=3):
    """Put a value, or delete (None). With `expect` only if the key's version is that (`ABSENT`: only if absent).

    `hits` are the answers given from the copy that the writer has dropped for this. Unless it is None, this is also
    the request for a lease on what is written, which comes with the outcome.
    """

    seq: int
    key: bytes
    value: bytes | None
    mode: str = "callback"
    expect: Version | None = None
    timeout_ms: int = 10_000
    hits: int | None = None


class Ack(Struct, frozen=True, array_like=True, gc=False, tag=4):
    """These keys are dropped, and so is every request for them that was in flight.

    `hits` are the answers given from memory, for each of the keys. Unless it is None, this is also the request
    `seq` for the new value: a *refill*, answered when the write has taken effect.
    """

    dropped: tuple[tuple[bytes, Version], ...]
    seq: int = 0
    hits: tuple[int | None, ...] = ()


class Release(Struct, frozen=True, array_like=True, gc=False, tag=5):
    """Everything is dropped, and nothing will be kept any more: the client ends."""


class Subscribe(Struct, frozen=True, array_like=True, gc=False, tag=6):
    seq: int
    prefix: bytes


class Unsubscribe(Struct, frozen=True, array_like=True, gc=False, tag=7):
    seq: int
    prefix: bytes


# --- from the authority ---


class Item(Struct, frozen=True, array_like=True, gc=False):
    """One key's value (None: absent) with a lease of `term_ms` (0: none, use once), or why there is none."""

    key: bytes
    value: bytes | None
    version: Version
    term_ms: int = 0
    code: Code = Code.OK


class Answer(Struct, frozen=True, array_like=True, gc=False, tag=16):
    seq: int
    items: tuple[Item, ...]


class Outcome(Struct, frozen=True, array_like=True, gc=False, tag=17):
    """The end of a write or subscription; `version` is the one written, or on CONFLICT the one that stands.

    With `term_ms` the writer may keep what it wrote for so long, counted from when it sent the write.
    """

    seq: int
    code: Code
    version: Version = ABSENT
    message: str = ""
    term_ms: int = 0


class Drop(Struct, frozen=True, array_like=True, gc=False, tag=18):
    """Drop these keys and acknowledge, each with the version by which the write that wants it is known."""

    keys: tuple[tuple[bytes, Version], ...]


class Changed(Struct, frozen=True, array_like=True, gc=False, tag=19):
    """Keys under a subscribed prefix that have changed; `missed`: there may have been more, look again."""

    changes: tuple[tuple[bytes, Version], ...]
    missed: bool = False


class Refill(Struct, frozen=True, array_like=True, gc=False, tag=20):
    """What acknowledgements asked for: the request of each, and the new value. Nobody waits for it."""

    items: tuple[tuple[int, Item], ...]


FromClient: TypeAlias = Hello | Ask | Write | Ack | Release | Subscribe | Unsubscribe
FromAuthority: TypeAlias = Answer | Outcome | Drop | Changed | Refill
