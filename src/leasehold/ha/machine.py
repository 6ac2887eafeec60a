"""One node: index, journal and roles put together. Pure: `handle(now_ms, event) -> effects`.

    machine = NodeMachine(identity, ha_settings, make_index)
    effects = machine.handle(now_ms, Started())

The shell carries the effects out and comes back with events; it calls `handle(now_ms, Ticked())` when
`machine.wake_at_ms` is reached. Clients' commands go through `machine.serving`, once the leader lease was checked:

    if not machine.serving.may_serve(now_ms): refuse, try elsewhere (never "no such key")
    reply = machine.serving.execute(command, ...)
    answer = machine.serving.answer(reply, frame)      # the frame, or a `Waiting`
    effects = machine.handle(now_ms, Decided())        # once for a burst of commands

A `Waiting` comes back in a `SendAnswers` effect when its record is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from leasehold.base import limits
from leasehold.ha.context import Context, Identity
from leasehold.ha.effects import NodeEffect, Role, SendAnswers
from leasehold.ha.events import (
    BufferDrained,
    BufferFailed,
    BufferPushed,
    Decided,
    FeatureLevelRequested,
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
from leasehold.ha.outbox import Outbox
from leasehold.ha.restore import Progress
from leasehold.ha.roles import Roles
from leasehold.ha.serving import Serving
from leasehold.ha.settings import HaSettings
from leasehold.ha.signing import Signer
from leasehold.ha.steps import Steps
from leasehold.index.index import Index

__all__ = ["Identity", "NodeMachine"]


class NodeMachine:
    """See the module. `serving` is the one entry point for clients, `outbox` holds the answers that wait."""

    def __init__(
        self,
        identity: Identity,
        settings: HaSettings,
        make_index: Callable[[], Index],
        signer: Signer | None = None,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.ctx = ctx = Context(identity, settings, make_index, signer)
        self._roles = Roles(ctx)
        self._work: Steps[None] | None = None  # the rest of the work on the present event
        self._waiting: deque[NodeEvent] = deque()  # events that arrived during that work
        self.busy = False  # whether such work is left; events wait until it is done, so send few
        self.wake_at_ms = 0
        self.index = ctx.state.index
        self.outbox = Outbox(settings.call_deadline_ms)
        self.serving = Serving(self.index, self.outbox)
        self._refresh()

    # --- for clients ---

    def _refresh(self) -> None:
        """After every event: the plain attributes that every request reads."""
        leading, state, outbox, serving = self._roles.leading, self.ctx.state, self.outbox, self.serving
        self.index = index = state.index
        if leading is None:
            outbox.update(state.applied.n, state.applied.n, NEVER_MS)
            serving.update(index, 0)
            return
        durable_n = leading.committer.durable.n
        # While the journal is too far behind the decisions, nothing more is decided (P6).
        serves = self.role is Role.PRIMARY and leading.committer.pending <= limits.journal_pending_records_max
        lease_until_ms = leading.leader_lease.until_ms if serves else NEVER_MS
        outbox.update(durable_n, durable_n if leading.sync else leading.acked_n, lease_until_ms)
        serving.update(index, leading.base_ms)

    @property
    def durable_n(self) -> int:
        """The last record known to be durable."""
        return self.outbox.durable_n

    @property
    def role(self) -> Role:
        return self._roles.status.role

    @property
    def sentence(self) -> str:
        """Why this node has its role, or what it does at the moment."""
        loading = self.loading
        return self._roles.status.sentence if loading is None else str(loading)

    @property
    def loading(self) -> Progress | None:
        """Set while this node loads a snapshot."""
        return self._roles.restore.progress

    @property
    def epoch(self) -> int:
        """The epoch that this node leads, or the last one that it has applied."""
        leading = self._roles.leading
        return leading.epoch if leading is not None else self.ctx.state.applied.epoch

    @property
    def lag(self) -> int:
        """Records between the applied index and the journal's tail as last read, at least."""
        return max(0, self._roles.watcher.tail_n - self.ctx.state.applied.n)

    @property
    def durable_copies(self) -> int:
        """How many nodes have the truncated part of the journal on disk. Fewer than `copies` is a risk."""
        if (truncation := self._roles.truncation) is not None:
            return truncation.copies
        return self.ctx.view.truncation_copies or self.settings.copies

    @property
    def ready(self) -> bool:
        """Whether this node may be promoted, or serves."""
        return self._roles.status.ready

    @property
    def forgeries(self) -> int:
        """How often this node has restored its leader key after another client had overwritten it."""
        return self._roles.forgeries

    @property
    def forced(self) -> bool:
        """Whether an operator has ordered this node to lead with the state that it has."""
        return self._roles.forced

    def may_serve(self, now_ms: int) -> bool:
        """Whether an answer may be sent at this moment: this node is the primary and its leader lease holds."""
        return now_ms < self.outbox.lease_until_ms

    def leader_ms(self, now_ms: int) -> int:
        """The leader's time: milliseconds since this epoch began, on this node's clock."""
        leading = self._roles.leading
        return now_ms - leading.base_ms if leading is not None else 0

    # --- events ---

    def handle(self, now_ms: int, event: NodeEvent, wall_us: int = 0) -> list[NodeEffect]:
        """Take one event; return the effects that the shell carries out, in order.

        `wall_us` is written into batches and markers, for people to read. Long work (records to be applied) is done in
        steps. Until it is finished `busy` is set, `wake_at_ms` is now, and other events wait.
        """
        self.ctx.begin_event(now_ms, wall_us)
        effects = self._handle(now_ms, event)
        self.busy = self._work is not None
        if self.outbox.waiting and self.outbox.may_serve(now_ms) and (released := self.outbox.release(now_ms)):
            effects.append(SendAnswers(released))
        return effects

    def _handle(self, now_ms: int, event: NodeEvent) -> list[NodeEffect]:
        effects, roles = self.ctx.effects, self._roles
        roles.awake(now_ms)
        if self._work is None:
            if self._only_journal(now_ms, event):
                return effects.take()
            self._work = self._begin(now_ms, event)
        elif type(event) is not Ticked:
            self._waiting.append(event)
        while self._step():
            roles.tick(now_ms, self.outbox.durable_n)
            roles.decide(now_ms)
            self.wake_at_ms = roles.wake_at_ms(now_ms)
            self._refresh()
            if not self._waiting:
                return effects.take()
            self._work = self._begin(now_ms, self._waiting.popleft())
        roles.at_work(now_ms)
        if self.index is not self.ctx.state.index:
            self._refresh()  # the earlier index was dropped
        self.wake_at_ms = now_ms
        return effects.take()

    def _step(self) -> bool:
        """Do one step of the work under way. True when none is left."""
        if self._work is not None and next(self._work, self) is self:
            self._work = None
        return self._work is None

    def _begin(self, now_ms: int, event: NodeEvent) -> Steps[None] | None:
        """Take one event; return the part of the work that is done in steps."""
        roles = self._roles
        match event:
            case StoreAnswered():
                return self.ctx.effects.answered(now_ms, event)
            case WatchDelivered():
                return roles.watcher.delivered(now_ms, event)
            case WatchBroken():
                roles.watcher.broken(now_ms, event)
            case LeaseLost(lease):
                roles.lease_lost(now_ms, lease)
            case Started():
                roles.restore.read()
            case SnapshotRead():
                return roles.snapshot_read(now_ms, event)
            case SnapshotStored(snapshot):
                roles.snapshots.stored(snapshot)
            case SnapshotFailed(snapshot):
                roles.snapshots.failed(now_ms, snapshot)
            case SwitchoverRequested(target):
                roles.switchover(now_ms, target)
            case ForceRequested():
                roles.force()
            case FeatureLevelRequested(level):
                roles.switch_level(now_ms, level)
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

        True: nothing else can have changed and nothing is due. If False, an answer of the store that was handled here
        has no effect in `_begin`: it is delivered only once.
        """
        leading = self._roles.leading
        if leading is None or leading.phase is not Phase.SERVING:
            return False
        if type(event) is Decided:
            leading.decided(now_ms)
        elif type(event) is StoreAnswered and event.request == leading.commit_request:
            self.ctx.effects.answered(now_ms, event)
            if self._roles.leading is not leading:
                return False
            self._refresh()
        else:
            return False
        if self.index.renewals.urgent:
            self.wake_at_ms = min(self.wake_at_ms, leading.wake_at_ms)
        return now_ms < self.wake_at_ms and leading.steady
