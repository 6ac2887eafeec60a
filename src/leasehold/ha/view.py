"""A node's view of its cluster besides the journal, kept up to date by listing and watching."""

from __future__ import annotations

from msgspec import Struct

from leasehold.base.errors import PeerError
from leasehold.ha.keys import EndMarker, Keys, LeaderValue, unpack
from leasehold.ha.node_values import NodeValue, TruncationPoint
from leasehold.journal.fenced_writer import slot_number
from leasehold.mvcc.model import Event, EventType, KeyValue


class Leader(Struct, frozen=True):
    epoch: int
    lease: int
    value: LeaderValue


class View:
    """Leader, end markers, nodes, truncation point and pause as of `revision`."""

    __slots__ = (
        "_keys",
        "_listed",
        "end_markers",
        "leader",
        "no_leader_since_ms",
        "nodes",
        "paused",
        "revision",
        "truncated_n",
        "truncation_copies",
    )

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.revision = 0
        self._listed = 0
        self.leader: Leader | None = None
        self.no_leader_since_ms = 0
        self.end_markers: dict[int, EndMarker] = {}
        self.nodes: dict[str, NodeValue] = {}
        self.truncated_n = 0
        self.truncation_copies = 0  # how many nodes have a snapshot that covers the truncation point; 0: unknown
        self.paused = False

    def replace(self, now_ms: int, revision: int, kvs: list[KeyValue]) -> None:
        """Replace the view with a listing at one revision."""
        had_leader = self.leader is not None
        self.leader, self.paused, self.truncated_n, self.truncation_copies = None, False, 0, 0
        self.end_markers, self.nodes = {}, {}
        self.revision = self._listed = revision
        for kv in kvs:
            self._put(kv)
        if self.leader is None and had_leader:
            self.no_leader_since_ms = now_ms

    def change(self, now_ms: int, event: Event) -> bool:
        """Apply one watched change. Returns True if it concerns the view and not the journal."""
        key, keys = event.kv.key, self._keys
        self.revision = max(self.revision, event.kv.mod_revision)
        if key.startswith(keys.journal):
            return False
        if event.kv.mod_revision <= self._listed:
            return True  # the watch is behind the listing
        if event.type is EventType.PUT:
            self._put(event.kv)
        elif key == keys.leader:
            self.leader = None
            self.no_leader_since_ms = now_ms
        elif key == keys.pause:
            self.paused = False
        elif key.startswith(keys.nodes):
            self.nodes.pop(key[len(keys.nodes) :].decode(errors="replace"), None)
        elif key.startswith(keys.end_markers):
            self.end_markers.pop(slot_number(key), None)
        return True

    def truncated_to(self, n: int) -> None:
        """This node has moved the truncation point: do not wait for the watch to report it."""
        self.truncated_n = max(self.truncated_n, n)

    def _put(self, kv: KeyValue) -> None:
        keys, key = self._keys, kv.key
        try:
            if key == keys.leader:
                self.leader = Leader(kv.create_revision, kv.lease, unpack(LeaderValue, kv.value, key))
            elif key == keys.pause:
                self.paused = True
            elif key == keys.truncation:
                point = unpack(TruncationPoint, kv.value, key)
                if point.n >= self.truncated_n:
                    self.truncated_n, self.truncation_copies = point.n, point.copies
            elif key.startswith(keys.nodes):
                self.nodes[key[len(keys.nodes) :].decode()] = unpack(NodeValue, kv.value, key)
            elif key.startswith(keys.end_markers):
                self.end_markers[slot_number(key)] = unpack(EndMarker, kv.value, key)
        except (PeerError, ValueError):
            return  # not one of our values, e.g. written manually: ignore it
