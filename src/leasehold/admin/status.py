"""What a node says about itself. One structure serves the HTTP answer, the metrics, and `leasehold status`."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field


class IndexCounts(Struct, frozen=True):
    """The index in numbers."""

    objects: int = 0
    unfinished: int = 0
    segments: int = 0
    clients: int = 0
    bytes_used: int = 0
    bytes_total: int = 0
    limbo_extents: int = 0  # at most: what was claimed since is counted until its time is over
    evicted: int = 0  # since this worker began


class Counters(Struct, frozen=True):
    """What this worker has counted since it began."""

    connections_accepted: int = 0
    connections_turned_away: int = 0
    unknown_outcomes: int = 0  # calls that waited past their deadline


class NodeStatus(Struct, frozen=True, kw_only=True):
    """One node, as it sees itself now. `lag_records` is against the durable tail, where that is known (else -1)."""

    name: str
    run: str
    pid: int = 0  # the worker's
    cluster: str
    version: str
    role: str
    reason: str  # the sentence of the last change of role
    may_serve: bool
    ready: bool  # may serve, or may be promoted
    epoch: int = 0
    leader: str = ""
    applied_n: int = 0
    durable_n: int = 0
    lag_records: int = -1
    behind_ms: int = -1  # how long ago a standby saw the primary write (it writes at least once a second)
    quarantined_records: int = field(default=0, name="set_aside")
    paused: bool = False
    rpc: str = ""
    admin: str = ""
    up_ms: int = 0
    connections: int = 0
    held_answers: int = 0
    durability: str = "sync"
    durable_copies: int = 0  # on how many nodes' disks that is which has left the journal; 0: not known
    journal_batches: int = 0  # as this node knows it
    journal_bytes: int = 0
    journal_full: bool = False  # the journal is at its bound: puts are refused
    buffer_waiting_bytes: int = 0  # acknowledged by earlier runs of this node, and not yet known to be in the journal
    buffer_aside_batches: int = 0  # acknowledged, and no longer to be attached: set aside for a person
    index: IndexCounts = IndexCounts()
    other_releases: dict[str, int] = {}  # requests seen whose hashes belong to another release than the port's
    refused: dict[str, int] = {}  # requests and connections refused since the worker began, by why
    counters: Counters = Counters()


class Peer(Struct, frozen=True):
    """A node of the cluster, as it has registered itself in the store."""

    name: str
    role: str
    ready: bool
    applied_n: int
    rpc: str
    admin: str
    quarantined_records: int = field(default=0, name="set_aside")
    leads: bool = False


class ClusterStatus(Struct, frozen=True, kw_only=True):
    """The cluster, as the store has it."""

    cluster: str
    leader: str = ""
    epoch: int = 0
    paused: str = ""  # why, and by whom; "" when it is not
    truncated_n: int = field(default=0, name="floor_n")
    durable_copies: int = 0  # on how many nodes' disks that is which has left the journal; 0: not told
    nodes: tuple[Peer, ...] = ()
    journal_batches: int = 0


class HistoryLine(Struct, frozen=True):
    wall_us: int
    node: str
    epoch: int
    role: str
    sentence: str
    counts: dict[str, int] = {}


class Operated(Struct, frozen=True):
    """What came of an operator's wish, in one sentence."""

    done: bool
    sentence: str


class NodeFace(Protocol):
    """What the admin port asks of a running node."""

    def status(self) -> NodeStatus: ...

    async def cluster(self) -> ClusterStatus: ...

    async def history(self, limit: int) -> list[HistoryLine]: ...

    async def switchover(self, target: str) -> Operated: ...

    async def force(self) -> Operated: ...

    async def pause(self, reason: str) -> Operated: ...

    async def resume(self) -> Operated: ...

    async def export(self) -> bytes:
        """The whole index as one file, as of now."""
        ...

    async def snapshot(self) -> bytes | None:
        """The newest complete snapshot on this node's disk, for a peer or an export; None where there is none."""
        ...
