"""What nodes say about themselves, and the few values besides the journal. JSON: readable with `etcdctl get`."""

from __future__ import annotations

from msgspec import Struct, field


class ConfirmedSnapshot(Struct, frozen=True):
    """A snapshot that its node has on disk and has read back: it replaces every record up to `low_n`."""

    low_n: int
    end_epoch: int
    end_n: int


class NodeValue(Struct, frozen=True, omit_defaults=True):
    """`nodes/{name}`, on a lease of the node's own: it is there while the node lives."""

    name: str
    run: str
    role: str
    ready: bool = False
    # The names in the store are those of the first release: nodes of both versions read them.
    applied_n: int = field(default=0, name="mark_n")
    applied_epoch: int = field(default=0, name="mark_epoch")
    reads: tuple[int, int] = (1, 1)  # journal versions it can read, oldest and newest
    reads_snapshots: int = 1  # the newest version of a snapshot that it can read
    snapshots: tuple[ConfirmedSnapshot, ...] = ()  # confirmed; withdrawn at start until they have been read back
    pin_n: int = -1  # while it streams a snapshot: nothing above this may leave the journal (-1: no pin)
    quarantined_records: int = field(default=0, name="set_aside")
    rpc: str = ""
    door: str = ""
    admin: str = ""


class TruncationPoint(Struct, frozen=True):
    """`floor`: records up to `n` may be gone from the journal. Written before anything is deleted."""

    n: int
    epoch: int
    copies: int = 0  # on how many nodes' snapshots that rests (0: written before this was told)


class HistoryEntry(Struct, frozen=True, omit_defaults=True):
    """`history/{epoch}-{count}`: one change of role, with its reason in words."""

    node: str
    epoch: int
    role: str
    sentence: str
    wall_us: int = 0
    counts: dict[str, int] = {}  # of a promotion: what it did, and what it began with


class PauseValue(Struct, frozen=True, omit_defaults=True):
    """`pause`: while it stands nobody campaigns."""

    by: str = ""
    reason: str = ""
    wall_us: int = 0
