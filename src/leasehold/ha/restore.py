"""Restores a node's state from a snapshot, its own or a peer's."""

from __future__ import annotations

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effects import ReadSnapshot
from leasehold.ha.events import SnapshotRead
from leasehold.ha.node_values import ConfirmedSnapshot
from leasehold.ha.steps import Steps
from leasehold.index.snapshot_load import BadSnapshot
from leasehold.journal.snapshot_file import SnapshotReader, UnreadableSnapshot

PAUSE_MS = 1_000  # between two attempts to rebuild
SOON_MS = 10_000  # a second rebuild within this time: this node's own snapshot did not help


class Progress:
    """How much of a snapshot is loaded. With a million objects loading takes seconds."""

    __slots__ = ("_reader", "source")

    def __init__(self, source: str, reader: SnapshotReader) -> None:
        self.source = source
        self._reader = reader

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self._reader.read_bytes / self._reader.size_bytes

    def __str__(self) -> str:
        return f"Loading a snapshot from {self.source}: {self.share:.0%}."


class Restore:
    """Requests a snapshot and loads it. The watcher then reads the journal after it."""

    __slots__ = (
        "_ctx", "_prefers_leader", "_prefers_peer", "_requested_ms", "pin_n", "progress", "reading", "wake_at_ms",
    )  # fmt: skip

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.reading = False  # a snapshot was requested, or is being loaded
        self.progress: Progress | None = None  # set while one is being loaded
        self._prefers_peer = False  # the next snapshot should come from a peer
        self._prefers_leader = False  # only the leader is sure to have the missing object
        self.pin_n = -1  # while a peer's snapshot is read: do not truncate the journal above this record
        self.wake_at_ms = FAR_MS
        self._requested_ms = -FAR_MS

    @property
    def busy(self) -> bool:
        """Whether a snapshot is being read, or will be: the state is not ready for the journal."""
        return self.reading or self.wake_at_ms != FAR_MS

    def prefer_peer(self) -> None:
        """Read the next snapshot from a peer, if one has any."""
        self._prefers_peer = True

    def prefer_leader(self) -> None:
        """Read the next snapshot from the leader, if it has one."""
        self._prefers_peer = self._prefers_leader = True

    def again(self, now_ms: int) -> None:
        """The state was reset: read a snapshot soon."""
        if now_ms < self._requested_ms + SOON_MS:
            if self._ctx.view.truncated_n > 0:
                self._prefers_peer = True
            else:
                self._prefers_leader = True  # then this node's snapshot is skipped: the journal has everything
        soon = now_ms < self._requested_ms + PAUSE_MS
        self._requested_ms = now_ms
        self.wake_at_ms = now_ms + (PAUSE_MS if soon else 0)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self.wake_at_ms:
            self.read()

    def read(self) -> None:
        """Request a snapshot. While a peer's is read, the truncation point is pinned."""
        self.wake_at_ms = FAR_MS
        self.reading = True
        peer = ""
        if self._prefers_peer:
            peers = self._peer_snapshots()
            self.pin_n = self._ctx.view.truncated_n
            peer = peers[-1][0] if peers else ""
            leader = self._ctx.view.leader
            if self._prefers_leader and leader is not None and any(name == leader.value.name for name, _ in peers):
                peer = leader.value.name
        self._ctx.effects.do(ReadSnapshot(peer))

    def peer_covers(self, n: int) -> bool:
        """Whether a peer's snapshot includes record `n`."""
        return any(snapshot.low_n >= n for _, snapshot in self._peer_snapshots())

    def _peer_snapshots(self) -> list[tuple[str, ConfirmedSnapshot]]:
        """Confirmed snapshots of other nodes, the newest last; the leader's is last among equals."""
        view, me = self._ctx.view, self._ctx.identity.name
        leads = view.leader.value.name if view.leader is not None else ""
        found = [
            (s.low_n, name == leads, name, s) for name, node in view.nodes.items() if name != me for s in node.snapshots
        ]
        return [(name, s) for _, _, name, s in sorted(found, key=lambda one: one[:3])]

    def answered(self, event: SnapshotRead) -> Steps[ConfirmedSnapshot | None]:
        """Load the snapshot that was read, if any. Returns its position if it came from this node's own disk."""
        try:
            return (yield from self._load(event))
        finally:
            self.reading, self.progress = False, None

    def _load(self, event: SnapshotRead) -> Steps[ConfirmedSnapshot | None]:
        ctx = self._ctx
        wanted_peer, self._prefers_peer = self._prefers_peer, False
        lacking, self._prefers_leader = self._prefers_leader, False
        self.pin_n = -1
        if lacking and event.local and ctx.view.truncated_n == 0:
            return None  # this node's snapshot lacks the object, and the journal is complete
        if event.raw is None:
            if wanted_peer and ctx.view.truncated_n > 0:
                ctx.effects.say("No peer could send a snapshot, and the journal is truncated. Trying again.")
            return None
        try:
            reader = SnapshotReader(event.raw, ctx.identity.cluster)
            self.progress = Progress(event.source, reader)
            yield from ctx.state.loading(reader)
        except (UnreadableSnapshot, BadSnapshot) as error:
            ctx.state.reset()
            ctx.effects.say(f"The snapshot from {event.source} cannot be used: {error}.", serious=True)
            return None
        ctx.effects.say(f"Loaded a snapshot from {event.source}. Replay continues after record {reader.low.n}.")
        return ConfirmedSnapshot(reader.low.n, reader.end.epoch, reader.end.n) if event.local else None
