"""What a node knows of its cluster besides the journal: one picture, kept by listing and watching."""

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
    """Leader, notes, nodes, floor and pause as of `revision`."""

    __slots__ = (
        "_keys",
        "_listed",
        "leader",
        "no_leader_since_ms",
        "nodes",
        "notes",
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
        self.notes: dict[int, EndMarker] = {}
        self.nodes: dict[str, NodeValue] = {}
        self.truncated_n = 0
        self.truncation_copies = 0  # on how many nodes' snapshots the floor rests; 0: not told
        self.paused = False

    def replace(self, now_ms: int, revision: int, kvs: list[KeyValue]) -> None:
        """A list at one revision: everything known before is forgotten."""
        had_leader = self.leader is not None
        self.leader, self.paused, self.truncated_n, self.truncation_copies = None, False, 0, 0
        self.notes, self.nodes = {}, {}
        self.revision = self._listed = revision
        for kv in kvs:
            self._put(kv)
        if self.leader is None and had_leader:
            self.no_leader_since_ms = now_ms

    def change(self, now_ms: int, event: Event) -> bool:
        """One watched change; True if it concerns the view (and not the journal)."""
        key, keys = event.kv.key, self._keys
        self.revision = max(self.revision, event.kv.mod_revision)
        if key.startswith(keys.journal):
            return False
        if event.kv.mod_revision <= self._listed:
            return True  # a watch that is behind a list tells old news
        if event.type is EventType.PUT:
            self._put(event.kv)
        elif key == keys.leader:
            self.leader = None
            self.no_leader_since_ms = now_ms
        elif key == keys.pause:
            self.paused = False
        elif key.startswith(keys.nodes):
            self.nodes.pop(key[len(keys.nodes) :].decode(errors="replace"), None)
        elif key.startswith(keys.notes):
            self.notes.pop(slot_number(key), None)
        return True

    def _put(self, kv: KeyValue) -> None:
        keys, key = self._keys, kv.key
        try:
            if key == keys.leader:
                self.leader = Leader(kv.create_revision, kv.lease, unpack(LeaderValue, kv.value, key))
            elif key == keys.pause:
                self.paused = True
            elif key == keys.floor:
                floor = unpack(TruncationPoint, kv.value, key)
                if floor.n >= self.truncated_n:
                    self.truncated_n, self.truncation_copies = floor.n, floor.copies
            elif key.startswith(keys.nodes):
                self.nodes[key[len(keys.nodes) :].decode()] = unpack(NodeValue, kv.value, key)
            elif key.startswith(keys.notes):
                self.notes[slot_number(key)] = unpack(EndMarker, kv.value, key)
        except (PeerError, ValueError):
            return  # somebody else's value under our prefix says nothing to us
