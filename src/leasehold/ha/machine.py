"""One node: index, journal and roles put together. Pure: `handle(now_ms, event) -> effects`.

    machine = NodeMachine(identity, ha_settings, make_index)
    effects = machine.handle(now_ms, Started())

The shell carries the effects out and comes back with events; it calls `handle(now_ms, Ticked())` when
`machine.wake_at_ms` is reached. The way of a client's command, without a detour through `handle`:

    if not machine.may_serve(now_ms): refuse, try elsewhere (never "no such key")
    answer, after = machine.index.some_command(machine.leader_ms(now_ms), ...)
    gate.hold(now_ms, after, answer) or send at once if after <= machine.acked_n
    effects = machine.handle(now_ms, Decided())        # once for a burst of commands

and after every `handle`: `gate.release(now_ms, machine)`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from leasehold.base import limits
from leasehold.ha.context import Context, Identity
from leasehold.ha.effects import NodeEffect, Role
from leasehold.ha.events import (
    BufferDrained,
    BufferFailed,
    BufferPushed,
    Decided,
    ForceRequested,
    LeaseLost,
    NodeEvent,
    SnapshotFailed,
    SnapshotRead,
    SnapshotStored,
    Started,
    StoreAnswered,
    SwitchoverRequested,
    Ticked,
    WatchBroken,
    WatchDelivered,
)
from leasehold.ha.leader_lease import NEVER_MS
from leasehold.ha.leading import Phase
from leasehold.ha.roles import Roles
from leasehold.ha.settings import HaSettings
from leasehold.ha.steps import Steps
from leasehold.index.index import Index

__all__ = ["Identity", "NodeMachine"]


class NodeMachine:
    """Attributes that the hot path reads: `index`, `durable_n`, `acked_n`, `right_until_ms`; and `leader_ms`."""

    def __init__(self, identity: Identity, settings: HaSettings, make_index: Callable[[], Index]) -> None:
        self.identity = identity
        self.settings = settings
        self.ctx = ctx = Context(identity, settings, make_index)
        self._roles = Roles(ctx)
        self._work: Steps[None] | None = None  # what is left to do about an event
        self._waiting: deque[NodeEvent] = deque()  # events that came meanwhile
        self.wake_at_ms = 0
        self.index = ctx.state.index
        self.durable_n = 0  # the last record known durable
        self.acked_n = 0  # answers that hand out no space may leave up to this record (see `durability`)
        self.right_until_ms = NEVER_MS  # until when an answer may leave
        self._refresh()

    # --- the hot path ---

    def _refresh(self) -> None:
        """What the hot path reads is plain attributes, set here, after every event."""
        leading, state = self._roles.leading, self.ctx.state
        self.index = state.index
        if leading is None:
            self.durable_n = self.acked_n = state.applied.n
            self.right_until_ms = NEVER_MS
        else:
            self.durable_n = leading.committer.durable.n
            self.acked_n = self.durable_n if leading.sync else leading.acked_n
            serves = self.role is Role.PRIMARY and leading.committer.pending <= limits.journal_pending_records_max
            # With more decided than the journal takes, nothing is decided any more until it has caught up (P6).
            self.right_until_ms = leading.right.until_ms if serves else NEVER_MS

    @property
    def role(self) -> Role:
        return self._roles.status.role

    @property
    def sentence(self) -> str:
        """Why this node has its role."""
        return self._roles.status.sentence

    @property
    def epoch(self) -> int:
        """The epoch that this node leads, or the last one that it has applied."""
        leading = self._roles.leading
        return leading.epoch if leading is not None else self.ctx.state.applied.epoch

    @property
    def lag(self) -> int:
        """Records between what was applied and the tail that a linearizable read has shown, at least."""
        return max(0, self._roles.watcher.tail_n - self.ctx.state.applied.n)

    @property
    def durable_copies(self) -> int:
        """On how many nodes' disks that is which has left the journal: fewer than `copies` is a mode to worry about."""
        floor = self._roles.truncation
        if floor is not None:
            return floor.copies
        return self.ctx.view.truncation_copies or self.settings.copies

    @property
    def ready(self) -> bool:
        """Whether this node may be promoted, or serves."""
        return self._roles.status.ready

    @property
    def forced(self) -> bool:
        """Whether an operator has given the word to lead with what is here."""
        return self._roles.forced

    @property
    def busy(self) -> bool:
        """Whether there is more to do about an event: what is told meanwhile waits (so tell no more than must be)."""
        return self._work is not None

    def may_serve(self, now_ms: int) -> bool:
        """Whether an answer may leave at this moment: primary, and the right to serve holds."""
        return now_ms < self.right_until_ms

    def leader_ms(self, now_ms: int) -> int:
        """The leader's time: milliseconds since this epoch began, on this node's clock."""
        leading = self._roles.leading
        return now_ms - leading.base_ms if leading is not None else 0

    # --- events ---

    def handle(self, now_ms: int, event: NodeEvent) -> list[NodeEffect]:
        """Take one event; what is to be done about it.

        Long work (records to be applied) is done in pieces: then `wake_at_ms` has come already, and every event that
        arrives meanwhile waits for its turn.
        """
        desk, roles = self.ctx.desk, self._roles
        desk.now_ms = now_ms
        roles.awake(now_ms)
        if self._work is None:
            if self._only_journal(now_ms, event):
                return desk.take()
            self._work = self._begin(now_ms, event)
        elif type(event) is not Ticked:
            self._waiting.append(event)
        while self._piece():
            roles.tick(now_ms, self.durable_n)
            roles.decide(now_ms)
            self.wake_at_ms = roles.wake_at_ms(now_ms)
            self._refresh()
            if not self._waiting:
                return desk.take()
            self._work = self._begin(now_ms, self._waiting.popleft())
        roles.at_work(now_ms)
        self.wake_at_ms = now_ms
        return desk.take()

    def _piece(self) -> bool:
        """Do a piece of the work that is under way; whether there is no more of it."""
        if self._work is not None and next(self._work, self) is self:
            self._work = None
        return self._work is None

    def _begin(self, now_ms: int, event: NodeEvent) -> Steps[None] | None:
        """Take one event; what of it is to be done in pieces."""
        roles = self._roles
        match event:
            case StoreAnswered():
                return self.ctx.desk.answered(now_ms, event)
            case WatchDelivered():
                return roles.watcher.delivered(now_ms, event)
            case WatchBroken():
                roles.watcher.broken(now_ms, event)
            case LeaseLost(lease):
                roles.lease_lost(now_ms, lease)
            case Started():
                roles.restore.read()
            case SnapshotRead():
                roles.snapshot_read(now_ms, event)
            case SnapshotStored(snapshot):
                roles.snapshots.stored(snapshot)
            case SnapshotFailed(snapshot):
                roles.snapshots.failed(now_ms, snapshot)
            case SwitchoverRequested(target):
                roles.switchover(now_ms, target)
            case ForceRequested():
                roles.force()
            case BufferPushed(n):
                if roles.leading is not None:
                    roles.leading.pushed(now_ms, n)
            case BufferDrained(batches):
                if roles.promotion is not None:
                    roles.promotion.drained(now_ms, batches)
            case BufferFailed(reason):
                roles.buffer_failed(now_ms, reason)
            case Decided():
                if roles.leading is not None:
                    roles.leading.decided(now_ms)
            case Ticked():
                pass
        return None

    def _only_journal(self, now_ms: int, event: NodeEvent) -> bool:
        """The hot path of a leader: records were decided, or a batch of them was committed.

        True: that was all. Nothing else can have changed, nothing is due. (An answer is handed on only once: if the
        rest has to be looked at too, it no longer concerns anybody there.)
        """
        leading = self._roles.leading
        if leading is None or leading.phase is not Phase.SERVING:
            return False
        if type(event) is Decided:
            leading.decided(now_ms)
        elif type(event) is StoreAnswered and event.request == leading.commit_request:
            self.ctx.desk.answered(now_ms, event)
            if self._roles.leading is not leading:
                return False
            self._refresh()
        else:
            return False
        if self.index.renewals.urgent:
            self.wake_at_ms = min(self.wake_at_ms, leading.wake_at_ms)
        return now_ms < self.wake_at_ms and leading.steady
