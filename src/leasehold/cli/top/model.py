"""Everything that `leasehold top` knows: the last frame of each node, the cluster as the store records it. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from leasehold.admin.live import LiveCluster, LiveNode
from leasehold.admin.samples import INTERVAL_MS, Sample
from leasehold.admin.status import ClusterStatus, HistoryLine, Peer
from leasehold.admin.worries import Worry

SILENT_MS: Final = 4_000  # a node without a frame for this long does not answer
KEPT_SAMPLES: Final = 150  # five minutes


class Shown(Struct, frozen=True):
    """One node as it is shown. `frame` is its last one; `peer` its registration in the store."""

    name: str
    answers: bool
    leads: bool
    lease_left_ms: int
    frame: LiveNode | None
    peer: Peer | None


class Model:
    """It changes only by frames that arrive, and by streams that end; the view reads it."""

    def __init__(self) -> None:
        self.cluster: ClusterStatus | None = None
        self.history: tuple[HistoryLine, ...] = ()
        self.problem = ""  # why the store's view of the cluster is unavailable
        self._worries: tuple[Worry, ...] = ()
        self._frames: dict[str, tuple[int, LiveNode]] = {}  # by node: when it was received, and the frame
        self._samples: dict[str, dict[int, Sample]] = {}  # by node and interval

    # --- what arrives

    def node_reported(self, now_ms: int, frame: LiveNode) -> None:
        self._frames[frame.status.name] = (now_ms, frame)
        if frame.sample is not None:
            self.samples_arrived(frame.status.name, [frame.sample])

    def samples_arrived(self, name: str, samples: list[Sample]) -> None:
        kept = self._samples.setdefault(name, {})
        kept.update({sample.wall_ms // INTERVAL_MS: sample for sample in samples[-KEPT_SAMPLES:]})
        for oldest in sorted(kept)[:-KEPT_SAMPLES]:
            del kept[oldest]

    def node_lost(self, name: str) -> None:
        """Its stream ended: its last frame is not the present any more."""
        if name in self._frames:
            self._frames[name] = (-SILENT_MS, self._frames[name][1])

    def cluster_reported(self, frame: LiveCluster) -> None:
        self.problem = frame.problem
        if not frame.problem:
            self.cluster, self.history, self._worries = frame.cluster, frame.history, frame.worries

    # --- what is shown

    def nodes(self, now_ms: int) -> list[Shown]:
        """The primary first, nodes that do not answer last: registered ones, and those that report."""
        peers = {peer.name: peer for peer in (self.cluster.nodes if self.cluster else ())}
        found = [self._shown(now_ms, name, peers.get(name)) for name in {*peers, *self._frames}]
        found = [node for node in found if node.peer is not None or node.answers]
        return sorted(found, key=lambda node: (not node.leads, not node.answers, node.name))

    def _shown(self, now_ms: int, name: str, peer: Peer | None) -> Shown:
        received_ms, frame = self._frames.get(name, (0, None))
        answers = frame is not None and now_ms - received_ms < SILENT_MS
        left_ms = frame.lease_left_ms - (now_ms - received_ms) if frame is not None and answers else -1
        # A leader whose lease has expired since its last frame does not lead, whatever that frame has.
        leads = answers and frame is not None and frame.status.may_serve and left_ms > 0
        return Shown(name, answers, leads, left_ms, frame, peer)

    def best(self, now_ms: int) -> LiveNode | None:
        """The node whose index is shown: the primary, else the most advanced one that answers."""
        nodes = [node for node in self.nodes(now_ms) if node.answers and node.frame is not None]
        found = max(
            nodes, key=lambda node: (node.leads, node.frame.status.applied_n if node.frame else 0), default=None
        )
        return found.frame if found else None

    def worries(self, now_ms: int) -> list[Worry]:
        """The serious ones first; each once."""
        found: dict[str, Worry] = {}
        if self.problem:
            remedy = "check the coordination store, and the way to it"
            found[""] = Worry(f"the state of the cluster cannot be read: {self.problem}", remedy, serious=True)
        else:
            found.update({worry.what: worry for worry in self._worries})
        for node in self.nodes(now_ms):
            if node.answers and node.frame is not None:
                found.update({worry.what: worry for worry in node.frame.worries})
            else:
                at = f" at {node.peer.admin}" if node.peer else ""
                what = f"{node.name} does not answer{at}"
                found[what] = Worry(what, "check that it runs, and that it is reachable from here")
        return sorted(found.values(), key=lambda worry: not worry.serious)

    def series(self, field: str, wall_ms: int, count: int) -> list[float]:
        """The last `count` values of a field, summed over all nodes: only the primary has calls."""
        last = wall_ms // INTERVAL_MS - 1  # the present interval is not complete
        each = self._samples.values()
        return [
            sum(float(getattr(samples[at], field)) for samples in each if at in samples)
            for at in range(last - count + 1, last + 1)
        ]
