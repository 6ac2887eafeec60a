"""A node's view of its cluster besides the journal, kept up to date by listing and watching."""

from __future__ import annotations

from msgspec import Struct

from leasehold.base.errors import PeerError
from leasehold.ha.keys import EndMarker, Keys, LeaderValue, unpack
from leasehold.ha.node_values import NodeValue, TruncationPoint
from leasehold.ha.signing import Signer, Trust
from leasehold.journal.fenced_writer import slot_number
from leasehold.mvcc.model import Event, EventType, KeyValue


class Leader(Struct, frozen=True):
    epoch: int
    lease: int
    value: LeaderValue
    revision: int = 0  # of the last write to the key
    trust: Trust = Trust.UNSIGNED

    @property
    def trusted(self) -> bool:
        """Whether the addresses in the value may be used. A leader's key always has a lease."""
        return self.trust is not Trust.FORGED and self.lease != 0


class View:
    """Leader, end markers, nodes, truncation point and pause as of `revision`."""

    __slots__ = (
        "_keys",
        "_listed",
        "_signer",
        "end_markers",
        "leader",
        "no_leader_since_ms",
        "nodes",
        "paused",
        "rejected",
        "revision",
        "truncated_n",
        "truncation_copies",
    )

    def __init__(self, keys: Keys, signer: Signer) -> None:
        self._keys = keys
        self._signer = signer
        self.rejected: set[str] = set()  # names whose registrations are forged or, when all nodes sign, unsigned
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
        self.rejected = set()
        for kv in kvs:
            self._put(kv)
        self._observe()
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
            self._observe()
        elif key == keys.leader:
            self.leader = None
            self.no_leader_since_ms = now_ms
        elif key == keys.pause:
            self.paused = False
        elif key.startswith(keys.nodes):
            name = key[len(keys.nodes) :].decode(errors="replace")
            self.nodes.pop(name, None)
            self.rejected.discard(name)
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
                self.leader = self._leader(kv)
            elif key == keys.pause:
                self.paused = True
            elif key == keys.truncation:
                point = unpack(TruncationPoint, kv.value, key)
                if point.n >= self.truncated_n:
                    self.truncated_n, self.truncation_copies = point.n, point.copies
            elif key.startswith(keys.nodes):
                self._register(key[len(keys.nodes) :].decode(), kv)
            elif key.startswith(keys.end_markers):
                self.end_markers[slot_number(key)] = unpack(EndMarker, kv.value, key)
        except (PeerError, ValueError):
            return  # not one of our values, e.g. written manually: ignore it

    def _leader(self, kv: KeyValue) -> Leader:
        """The key blocks campaigns in any case; its value counts only if it is trusted."""
        try:
            value = unpack(LeaderValue, kv.value, kv.key)
            trust = self._signer.judge(kv.value, kv.key, kv.lease)
        except PeerError:
            value, trust = LeaderValue("?", ""), Trust.FORGED
        return Leader(kv.create_revision, kv.lease, value, kv.mod_revision, trust)

    def _register(self, name: str, kv: KeyValue) -> None:
        value = unpack(NodeValue, kv.value, kv.key)
        if self._signer.judge(kv.value, kv.key, kv.lease) is Trust.FORGED:
            self.rejected.add(name)
            self.nodes.pop(name, None)
        else:
            self.rejected.discard(name)
            self.nodes[name] = value

    def _observe(self) -> None:
        """See whether every node signs now."""
        if not self._signer.all_sign:
            trusts = [Trust.SIGNED if node.signature else Trust.UNSIGNED for node in self.nodes.values()]
            self._signer.observe(trusts, self.leader.trust if self.leader is not None else None)
