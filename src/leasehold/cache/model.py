"""The messages between cache clients and their authority.

They contain durations, never points in time: a client counts a lease from when it *sent* the request for it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct

Mode: TypeAlias = Literal["callback", "wait", "fail"]
MODES: tuple[Mode, ...] = ("callback", "wait", "fail")


class Version(Struct, frozen=True, order=True, array_like=True, gc=False):
    """A version of a value. One counter serves all keys: epochs only grow, and so does `n` within an epoch."""

    epoch: int
    n: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.n}"


ABSENT = Version(0, 0)


class Code(StrEnum):
    """The result of a request. Any code but OK and UNKNOWN means that nothing was changed."""

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
    """The first message of a connection: the client's identity, which no other process uses."""

    client: str


class Ask(Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Read these keys. `hits` counts the answers from memory since the last request for each key."""

    seq: int
    keys: tuple[bytes, ...]
    hits: tuple[int, ...] = ()


class Write(Struct, frozen=True, array_like=True, gc=False, tag=3):
    """Put a value, or delete (None). With `expect` only if the key has that version (`ABSENT`: only if absent).

    `hits` counts the answers from the copy that the writer has dropped. Unless it is None, the write also requests a
    lease on the written value, which comes with the outcome.
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

    `hits` counts the answers from memory for each key. Unless it is None, this is also the request `seq` for the new
    value: a *refill*, answered when the write has taken effect.
    """

    dropped: tuple[tuple[bytes, Version], ...]
    seq: int = 0
    hits: tuple[int | None, ...] = ()


class Release(Struct, frozen=True, array_like=True, gc=False, tag=5):
    """Everything is dropped, and every answer in flight will be ignored: the client is closing."""


class Subscribe(Struct, frozen=True, array_like=True, gc=False, tag=6):
    seq: int
    prefix: bytes


class Unsubscribe(Struct, frozen=True, array_like=True, gc=False, tag=7):
    seq: int
    prefix: bytes


# --- from the authority ---


class Item(Struct, frozen=True, array_like=True, gc=False):
    """One key's value (None: absent) with a lease of `term_ms` (0: none, use once); or an error code."""

    key: bytes
    value: bytes | None
    version: Version
    term_ms: int = 0
    code: Code = Code.OK


class Answer(Struct, frozen=True, array_like=True, gc=False, tag=16):
    seq: int
    items: tuple[Item, ...]


class Outcome(Struct, frozen=True, array_like=True, gc=False, tag=17):
    """The result of a write or subscription; `version` is the one written, or on CONFLICT the current one.

    The writer may keep its value for `term_ms`, counted from when it sent the write.
    """

    seq: int
    code: Code
    version: Version = ABSENT
    message: str = ""
    term_ms: int = 0


class Drop(Struct, frozen=True, array_like=True, gc=False, tag=18):
    """Drop these keys and acknowledge them, each with the version that identifies the pending write."""

    keys: tuple[tuple[bytes, Version], ...]


class Changed(Struct, frozen=True, array_like=True, gc=False, tag=19):
    """Keys under a subscribed prefix that have changed; `missed`: there may have been more changes."""

    changes: tuple[tuple[bytes, Version], ...]
    missed: bool = False


class Refill(Struct, frozen=True, array_like=True, gc=False, tag=20):
    """Answers to acknowledgements: the request of each, and the new value. No call waits for them."""

    items: tuple[tuple[int, Item], ...]


FromClient: TypeAlias = Hello | Ask | Write | Ack | Release | Subscribe | Unsubscribe
FromAuthority: TypeAlias = Answer | Outcome | Drop | Changed | Refill
