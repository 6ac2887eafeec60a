"""The status of a node and of a cluster, for the HTTP admin interface, the metrics and `leasehold status`.

Names in the JSON do not change (`JSON_NAMES`): nodes and programs of other releases read them.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field

from leasehold.admin.access import Order
from leasehold.base.measures import Measure
from leasehold.base.renamed import JSON_NAMES


class IndexCounts(Struct, frozen=True):
    """Sizes of the index."""

    objects: int = 0
    unfinished: int = 0
    segments: int = 0
    clients: int = 0
    bytes_used: int = 0
    bytes_total: int = 0
    # upper bound: an extent that is reused early is counted until its quarantine expires
    quarantined_extents: int = field(default=0, name=JSON_NAMES["quarantined_extents"])
    evicted: int = 0  # since this worker started


class Counters(Struct, frozen=True):
    """Counters since this worker started."""

    connections_accepted: int = 0
    connections_turned_away: int = 0
    unknown_outcomes: int = 0  # calls that waited past their deadline


class NodeStatus(Struct, frozen=True, kw_only=True):
    """The status that a node reports of itself."""

    name: str
    run: str
    pid: int = 0  # of the worker
    cluster: str
    version: str
    role: str
    reason: str  # reason of the last change of role, or the progress of a load
    may_serve: bool
    ready: bool  # may serve, or may be promoted
    epoch: int = 0
    leader: str = ""
    applied_n: int = 0
    durable_n: int = 0
    snapshot_loaded: float = -1.0  # share of a snapshot that is being loaded, from 0 to 1; -1: none is
    lag_records: int = -1  # durable records not yet applied; -1: unknown
    behind_ms: int = -1  # time since a standby last saw a write of the primary, which writes every `flush_interval`
    quarantined_records: int = field(default=0, name=JSON_NAMES["quarantined_records"])
    paused: bool = False
    rpc: str = ""
    admin: str = ""
    up_ms: int = 0
    connections: int = 0
    held_answers: int = 0
    durability: str = "sync"
    durable_copies: int = 0  # nodes whose snapshots cover the truncated part of the journal; 0: unknown
    journal_batches: int = 0  # as known to this node
    journal_bytes: int = 0
    journal_full: bool = False  # the journal is full: puts are refused
    snapshot_problem: str = ""  # why the last snapshot could not be written, e.g. a full disk; "" if it was
    buffer_waiting_bytes: int = 0  # acknowledged by earlier runs of this node, not yet known to be in the journal
    # acknowledged batches that can no longer be added to the journal: an operator decides
    buffer_quarantined_batches: int = field(default=0, name=JSON_NAMES["buffer_quarantined_batches"])
    feature_level: int = 0  # of the cluster, as applied by this node
    feature_level_n: int = 0  # the record that set it
    reads_level: int = 0  # the highest feature level that this node can read
    terms: dict[str, int] = {}  # lease settings that all nodes must share, in milliseconds
    index: IndexCounts = IndexCounts()
    other_releases: dict[str, int] = {}  # requests whose function hashes belong to another release than the port's
    refused: dict[str, int] = {}  # requests and connections refused since the worker started, by reason
    host_refusals: dict[str, dict[str, int]] = {}  # storage hosts that refused requests lately: counts by reason
    counters: Counters = Counters()


class Peer(Struct, frozen=True):
    """A node of the cluster, as registered in the store."""

    name: str
    role: str
    ready: bool
    applied_n: int
    rpc: str
    admin: str
    quarantined_records: int = field(default=0, name=JSON_NAMES["quarantined_records"])
    leads: bool = False
    reads_level: int = 0  # the highest feature level that it can read


class DeadNode(Struct, frozen=True):
    """A node that has run and is not registered any more."""

    name: str
    rpc: str
    admin: str
    version: str
    started_us: int  # when it was last started


class ClusterStatus(Struct, frozen=True, kw_only=True):
    """The cluster, as recorded in the store."""

    cluster: str
    leader: str = ""
    epoch: int = 0
    leader_key: str = ""  # in the store
    paused: str = ""  # operator and reason; "" if not paused
    forged: tuple[str, ...] = ()  # values in the store that no node of the cluster wrote
    truncated_n: int = field(default=0, name=JSON_NAMES["truncated_n"])
    durable_copies: int = 0  # nodes whose snapshots cover the truncated part of the journal; 0: unknown
    nodes: tuple[Peer, ...] = ()
    dead: tuple[DeadNode, ...] = ()
    journal_batches: int = 0


class HistoryLine(Struct, frozen=True):
    """One change of role, or one order of an operator (`role` is "order")."""

    wall_us: int
    node: str
    epoch: int
    role: str
    sentence: str
    counts: dict[str, int] = {}


class Operated(Struct, frozen=True):
    """The result of an operator's command, with a sentence for people."""

    done: bool
    sentence: str


class NodeFace(Protocol):
    """The interface of a running node for the admin port."""

    def status(self) -> NodeStatus: ...

    def measures(self) -> list[Measure]:
        """Counters and histograms beyond the status, for a scrape."""
        ...

    def peers(self) -> list[str]:
        """The admin addresses of the registered nodes."""
        ...

    async def cluster(self) -> ClusterStatus: ...

    async def history(self, limit: int) -> list[HistoryLine]: ...

    async def record_order(self, order: Order) -> None:
        """Write an order into the log and the history, before it is carried out. Raises if that is impossible."""
        ...

    async def switchover(self, target: str) -> Operated: ...

    async def force(self) -> Operated: ...

    async def switch_level(self, level: str) -> Operated: ...

    async def pause(self, reason: str) -> Operated: ...

    async def resume(self) -> Operated: ...

    async def export(self) -> bytes:
        """The whole index as one file, at this moment."""
        ...

    async def snapshot(self) -> bytes | None:
        """The newest complete snapshot on this node's disk, for another node; None if there is none."""
        ...
