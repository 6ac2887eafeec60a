"""Where a node's state begins: a snapshot, its own or a peer's. Pure."""

from __future__ import annotations

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effects import ReadSnapshot
from leasehold.ha.events import SnapshotRead
from leasehold.ha.node_values import ConfirmedSnapshot
from leasehold.index.snapshot_load import BadSnapshot
from leasehold.journal.snapshot_file import UnreadableSnapshot, load_snapshot

PAUSE_MS = 1_000  # between two attempts to rebuild
SOON_MS = 10_000  # a rebuild so soon after another: what we have ourselves was of no use


class Base:
    """Asks for a snapshot, and begins the state from it. The journal after it is the watcher's to read."""

    __slots__ = ("_asked_ms", "_ctx", "pin_n", "reading", "wake_at_ms", "wants_leader", "wants_peer")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.reading = False  # a snapshot was asked for
        self.wants_peer = False  # the next one must come from a peer
        self.wants_leader = False  # the leader has what we lack: its own will do, others may lack it too
        self.pin_n = -1  # while a peer's is read: nothing above this may leave the journal
        self.wake_at_ms = FAR_MS
        self._asked_ms = -FAR_MS

    @property
    def busy(self) -> bool:
        """There is no base yet: it is being read, or will be."""
        return self.reading or self.wake_at_ms != FAR_MS

    def again(self, now_ms: int) -> None:
        """The state was forgotten: read a base anew, soon."""
        if now_ms < self._asked_ms + SOON_MS:
            if self._ctx.view.truncated_n > 0:
                self.wants_peer = True
            else:
                self.wants_leader = True  # then ours is left where it is: the journal has everything
        soon = now_ms < self._asked_ms + PAUSE_MS
        self._asked_ms = now_ms
        self.wake_at_ms = now_ms + (PAUSE_MS if soon else 0)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self.wake_at_ms:
            self.read()

    def read(self) -> None:
        """Ask for a snapshot. A peer's holds the floor meanwhile."""
        self.wake_at_ms = FAR_MS
        self.reading = True
        peer = ""
        if self.wants_peer:
            peers = self._peer_snapshots()
            self.pin_n = self._ctx.view.truncated_n
            peer = peers[-1][0] if peers else ""
            leader = self._ctx.view.leader
            if self.wants_leader and leader is not None and any(name == leader.value.name for name, _ in peers):
                peer = leader.value.name
        self._ctx.desk.do(ReadSnapshot(peer))

    def peer_covers(self, n: int) -> bool:
        """Whether a peer's snapshot is past record `n`."""
        return any(applied.low_n >= n for _, applied in self._peer_snapshots())

    def _peer_snapshots(self) -> list[tuple[str, ConfirmedSnapshot]]:
        """Confirmed snapshots of other nodes, the newest last; at equal age the leader's."""
        view, me = self._ctx.view, self._ctx.identity.name
        leads = view.leader.value.name if view.leader is not None else ""
        found = [
            (s.low_n, name == leads, name, s) for name, node in view.nodes.items() if name != me for s in node.snapshots
        ]
        return [(name, s) for _, _, name, s in sorted(found, key=lambda one: one[:3])]

    def answered(self, event: SnapshotRead) -> ConfirmedSnapshot | None:
        """Begin from what came, or from nothing; the snapshot's mark if it was read back from this node's own disk."""
        ctx = self._ctx
        self.reading = False
        wanted_peer, self.wants_peer = self.wants_peer, False
        lacking, self.wants_leader = self.wants_leader, False
        self.pin_n = -1
        if lacking and event.source == "disk" and ctx.view.truncated_n == 0:
            return None  # ours lacks it, and the journal has everything from its beginning
        if event.raw is None:
            if wanted_peer and ctx.view.truncated_n > 0:
                ctx.desk.say("No peer could give a snapshot, and the journal's beginning is gone: trying again.")
            return None
        try:
            loaded = load_snapshot(event.raw, ctx.identity.cluster, ctx.step)
            ctx.state.load(loaded, ctx.step)
        except (UnreadableSnapshot, BadSnapshot) as error:
            ctx.state.reset()
            ctx.desk.say(f"A snapshot from {event.source} is of no use: {error}.", serious=True)
            return None
        ctx.desk.say(f"Loaded a snapshot from {event.source}: replay goes on after record {loaded.low.n}.")
        return ConfirmedSnapshot(loaded.low.n, loaded.end.epoch, loaded.end.n) if event.source == "disk" else None
