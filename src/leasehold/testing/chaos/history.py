"""Recorded calls: who called what, when, and what was answered; and the faults.

Times are nanoseconds of `CLOCK_BOOTTIME`, which all processes of a run share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from leasehold.testing.checkers import Operation, by_key

What = Literal["put", "upsert", "remove", "read", "lose"]
Outcome = Literal["ok", "refused", "unknown"]
NOT_FOUND = -704


class Extent(Struct, frozen=True):
    """A range of bytes on a storage host."""

    endpoint: str
    address: int
    size: int

    def overlaps(self, other: Extent) -> bool:
        return (
            self.endpoint == other.endpoint
            and self.address < other.address + other.size
            and other.address < self.address + self.size
        )


class Call(Struct, frozen=True, omit_defaults=True):
    """One call of one client. `version` is the version that was written or read; None: the key is absent.

    `lose` is not a call: a storage host was killed, so this version may be absent from then on.
    `called_ns` of a put is when its space was requested; `placed_ns` is when it was answered with `extents`.
    """

    client: str
    key: str
    what: What
    called_ns: int
    returned_ns: int
    outcome: Outcome
    version: str | None = None
    code: int = 0
    forced: bool = False
    placed_ns: int = 0
    extents: tuple[Extent, ...] = ()
    lease_ms: int = 0  # of a read: the granted lease, counted from `called_ns`
    problem: str = ""  # wrong bytes, seen by the client itself

    @property
    def good(self) -> bool:
        """Whether the master answered the call as one that it serves."""
        return self.outcome != "unknown"

    @property
    def took_ms(self) -> float:
        return (self.returned_ns - self.called_ns) / 1e6


class FaultLine(Struct, frozen=True):
    """A fault as it happened. `problem` is set if it could not be carried out, or if the cluster did not settle."""

    number: int
    kind: str
    victim: str
    began_ns: int
    healed_ns: int
    settled_ns: int
    problem: str = ""

    @property
    def hold_ms(self) -> float:
        return (self.healed_ns - self.began_ns) / 1e6


class HostLoss(Struct, frozen=True):
    """A storage host was killed; a new one listens at its address from `back_ns` on."""

    endpoint: str
    killed_ns: int
    back_ns: int


def operations(calls: Iterable[Call]) -> dict[str, list[Operation]]:
    """The history of each key as a register, for the checkers. Calls that reveal nothing are left out."""
    return by_key((call.key, operation) for call in calls for operation in _operation(call))


def _operation(call: Call) -> Iterator[Operation]:
    known = call.outcome == "ok"
    returned = call.returned_ns if known else None
    if call.outcome == "refused":
        if call.what == "remove" and call.code == NOT_FOUND:
            yield Operation(call.called_ns, call.returned_ns, "read", None, None, call.client)
    elif call.what == "read":
        if known:
            yield Operation(call.called_ns, returned, "read", None, call.version, call.client)
    elif call.what == "remove":
        yield Operation(call.called_ns, returned, "write", None, None, call.client)
    elif call.what == "upsert":
        yield Operation(call.called_ns, returned, "write", call.version, None, call.client)
    elif call.what == "put":  # refused if the key exists, so a success shows that it was absent
        yield Operation(call.called_ns, returned, "cas", (None, call.version), known, call.client)
    else:
        yield Operation(call.called_ns, None, "cas", (call.version, None), False, call.client)


def read_calls(path: Path) -> list[Call]:
    """The calls in a file of JSON lines, without a last line that is not complete."""
    if not path.exists():
        return []
    decoder = msgspec.json.Decoder(Call)
    return [decoder.decode(line) for line in path.read_bytes().split(b"\n")[:-1] if line]
