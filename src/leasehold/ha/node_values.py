"""The values that nodes publish about themselves and their cluster. JSON, readable with `etcdctl get`."""

from __future__ import annotations

from msgspec import Struct, field


class ConfirmedSnapshot(Struct, frozen=True):
    """A snapshot that its node has on disk and has read back. It replaces every record up to `low_n`."""

    low_n: int
    end_epoch: int
    end_n: int


class NodeValue(Struct, frozen=True, omit_defaults=True):
    """`nodes/{name}`, attached to the node's own lease: it exists while the node is alive."""

    name: str
    run: str
    role: str
    ready: bool = False
    # The names in the store are those of the first release: nodes of mixed versions read each other's values.
    applied_n: int = field(default=0, name="mark_n")
    applied_epoch: int = field(default=0, name="mark_epoch")
    reads: tuple[int, int] = (1, 1)  # journal versions that the node can read, oldest and newest
    reads_snapshots: int = 1  # the newest snapshot version that the node can read
    snapshots: tuple[ConfirmedSnapshot, ...] = ()  # confirmed; withdrawn at start until they have been read back
    pin_n: int = -1  # while it streams a snapshot: do not truncate the journal above this record (-1: no pin)
    quarantined_records: int = field(default=0, name="set_aside")
    rpc: str = ""
    door: str = ""
    admin: str = ""
    reads_level: int = 0  # the highest feature level that the node can read
    lease: int = 0  # the key's lease, if the value is signed
    signature: str = ""


class MemberValue(Struct, frozen=True, omit_defaults=True):
    """`members/{name}`: a node that has run, for people. Unlike `nodes/{name}` it stays when the node is dead."""

    name: str
    rpc: str = ""
    admin: str = ""
    version: str = ""
    started_us: int = 0  # wall clock


class TruncationPoint(Struct, frozen=True):
    """`floor` in the store: records up to `n` may have been deleted. Written before anything is deleted."""

    n: int
    epoch: int
    copies: int = 0  # how many nodes have a snapshot that covers it (0: written by a release that did not count)


class HistoryEntry(Struct, frozen=True, omit_defaults=True):
    """`history/{epoch}-{count}`: one change of role, with its reason."""

    node: str
    epoch: int
    role: str
    sentence: str
    wall_us: int = 0
    counts: dict[str, int] = {}  # of a promotion: its work and its starting state


class PauseValue(Struct, frozen=True, omit_defaults=True):
    """`pause`: while this key exists no node campaigns."""

    by: str = ""
    reason: str = ""
    wall_us: int = 0
