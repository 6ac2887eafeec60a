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
from leasehold.base.invariants import ensure
from leasehold.ha.base import Base
from leasehold.ha.context import Context, Identity
from leasehold.ha.effects import DropLease, NodeEffect, Role
from leasehold.ha.election import Campaign, Turn
from leasehold.ha.events import (
    BufferDrained,
    BufferFailed,
    BufferPushed,
    Decided,
    ForceAsked,
    LeaseLost,
    NodeEvent,
    SnapshotFailed,
    SnapshotRead,
    SnapshotStored,
    Started,
    StoreAnswered,
    SwitchoverAsked,
    Ticked,
    WatchBroken,
    WatchDelivered,
)
from leasehold.ha.floor import Floor
from leasehold.ha.leading import Leading, Phase
from leasehold.ha.pieces import Pieces
from leasehold.ha.promotion import Promotion, Ready
from leasehold.ha.publisher import Publisher
from leasehold.ha.registration import Registration
from leasehold.ha.right import NEVER_MS
from leasehold.ha.settings import HaSettings
from leasehold.ha.snapshots import Snapshots
from leasehold.ha.standing import Standing
from leasehold.ha.watcher import Watcher
from leasehold.index.index import Index

__all__ = ["Identity", "NodeMachine"]


class NodeMachine:
    """Attributes that the hot path reads: `index`, `durable_n`, `acked_n`, `right_until_ms`; and `leader_ms`."""

    def __init__(self, identity: Identity, settings: HaSettings, make_index: Callable[[], Index]) -> None:
        self.identity = identity
        self.settings = settings
        self.ctx = ctx = Context(identity, settings, make_index)
        self._standing = Standing(ctx)
        self.forced = False
        self._watcher = Watcher(ctx, self._rebuild)
        self._registration = Registration(ctx)
        self._snapshots = Snapshots(ctx)
        self._turn = Turn(ctx)
        self._campaign: Campaign | None = None
        self._promotion: Promotion | None = None
        self._leading: Leading | None = None
        self._floor: Floor | None = None
        self._publisher: Publisher | None = None
        self._counts: dict[str, int] = {}  # of the last promotion
        self._base = Base(ctx)
        self._work: Pieces[None] | None = None  # what is left to do about an event
        self._waiting: deque[NodeEvent] = deque()  # events that came meanwhile
        self.wake_at_ms = 0
        self.index = ctx.replica.index
        self.durable_n = 0  # the last record known durable
        self.acked_n = 0  # answers that hand out no space may leave up to this record (see `durability`)
        self.right_until_ms = NEVER_MS  # until when an answer may leave
        self._refresh()

    # --- the hot path ---

    def _refresh(self) -> None:
        """What the hot path reads is plain attributes, set here, after every event."""
        leading, replica = self._leading, self.ctx.replica
        self.index = replica.index
        if leading is None:
            self.durable_n = self.acked_n = replica.mark.n
            self.right_until_ms = NEVER_MS
        else:
            self.durable_n = leading.committer.durable.n
            self.acked_n = self.durable_n if leading.sync else leading.acked_n
            serves = self.role is Role.PRIMARY and leading.committer.pending <= limits.journal_pending_records_max
            # With more decided than the journal takes, nothing is decided any more until it has caught up (P6).
            self.right_until_ms = leading.right.until_ms if serves else NEVER_MS

    @property
    def role(self) -> Role:
        return self._standing.role

    @property
    def sentence(self) -> str:
        """Why this node has its role."""
        return self._standing.sentence

    @property
    def epoch(self) -> int:
        """The epoch that this node leads, or the last one that it has applied."""
        return self._leading.epoch if self._leading is not None else self.ctx.replica.mark.epoch

    @property
    def lag(self) -> int:
        """Records between what was applied and the tail that a linearizable read has shown, at least."""
        return max(0, self._watcher.tail_n - self.ctx.replica.mark.n)

    @property
    def durable_copies(self) -> int:
        """On how many nodes' disks that is which has left the journal: fewer than `copies` is a mode to worry about."""
        if self._floor is not None:
            return self._floor.copies
        return self.ctx.view.floor_copies or self.settings.copies

    @property
    def ready(self) -> bool:
        """Whether this node may be promoted, or serves."""
        return self._standing.ready

    @property
    def busy(self) -> bool:
        """Whether there is more to do about an event: what is told meanwhile waits (so tell no more than must be)."""
        return self._work is not None

    def may_serve(self, now_ms: int) -> bool:
        """Whether an answer may leave at this moment: primary, and the right to serve holds."""
        return now_ms < self.right_until_ms

    def leader_ms(self, now_ms: int) -> int:
        """The leader's time: milliseconds since this epoch began, on this node's clock."""
        return now_ms - self._leading.base_ms if self._leading is not None else 0

    # --- events ---

    def handle(self, now_ms: int, event: NodeEvent) -> list[NodeEffect]:
        """Take one event; what is to be done about it.

        Long work (records to be applied) is done in pieces: then `wake_at_ms` has come already, and every event that
        arrives meanwhile waits for its turn.
        """
        desk = self.ctx.desk
        desk.now_ms = now_ms
        if self._work is None:
            if self._only_journal(now_ms, event):
                return desk.take()
            self._work = self._begin(now_ms, event)
        elif type(event) is not Ticked:
            self._waiting.append(event)
        while self._piece():
            self._tick(now_ms)
            self._decide(now_ms)
            self._set_wake(now_ms)
            self._refresh()
            if not self._waiting:
                return desk.take()
            self._work = self._begin(now_ms, self._waiting.popleft())
        self.wake_at_ms = now_ms
        return desk.take()

    def _piece(self) -> bool:
        """Do a piece of the work that is under way; whether there is no more of it."""
        if self._work is not None and next(self._work, self) is self:
            self._work = None
        return self._work is None

    def _begin(self, now_ms: int, event: NodeEvent) -> Pieces[None] | None:
        """Take one event; what of it is to be done in pieces."""
        match event:
            case StoreAnswered():
                return self.ctx.desk.answered(now_ms, event)
            case WatchDelivered():
                return self._watcher.delivered(now_ms, event)
            case WatchBroken():
                self._watcher.broken(now_ms, event)
            case LeaseLost(lease):
                self._lease_lost(now_ms, lease)
            case Started():
                self._base.read()
            case SnapshotRead():
                self._snapshot_read(now_ms, event)
            case SnapshotStored(snapshot):
                self._snapshots.stored(snapshot)
            case SnapshotFailed(snapshot):
                self._snapshots.failed(now_ms, snapshot)
            case SwitchoverAsked(target):
                self._switchover(now_ms, target)
            case ForceAsked():
                self.forced = True
            case BufferPushed(n):
                if self._leading is not None:
                    self._leading.pushed(now_ms, n)
            case BufferDrained(batches):
                if self._promotion is not None:
                    self._promotion.drained(now_ms, batches)
            case BufferFailed(reason):
                self._buffer_failed(now_ms, reason)
            case Decided():
                if self._leading is not None:
                    self._leading.decided(now_ms)
            case Ticked():
                pass
        return None

    def _only_journal(self, now_ms: int, event: NodeEvent) -> bool:
        """The hot path of a leader: records were decided, or a batch of them was committed.

        True: that was all. Nothing else can have changed, nothing is due. (An answer is handed on only once: if the
        rest has to be looked at too, it no longer concerns anybody there.)
        """
        leading = self._leading
        if leading is None or leading.phase is not Phase.SERVING:
            return False
        if type(event) is Decided:
            leading.decided(now_ms)
        elif type(event) is StoreAnswered and event.request == leading.commit_request:
            self.ctx.desk.answered(now_ms, event)
            if self._leading is not leading:
                return False
            self._refresh()
        else:
            return False
        if self.index.urgent:
            self.wake_at_ms = min(self.wake_at_ms, leading.wake_at_ms)
        return now_ms < self.wake_at_ms and leading.steady

    def _tick(self, now_ms: int) -> None:
        """Everything that is due by the clock."""
        self._watcher.tick(now_ms)
        if self._leading is None:
            self.ctx.replica.ledger.trimmed(self.ctx.view.floor_n)
        self._registration.tick(now_ms)
        if self._campaign is not None:
            self._campaign.tick(now_ms)
        if self._promotion is not None:
            self._promotion.tick(now_ms)
        if self._leading is not None:
            self._leading.tick(now_ms)
        if self._floor is not None:
            self._floor.tick(now_ms)
        if self._publisher is not None:
            self._publisher.tick(now_ms)
        self._base.tick(now_ms)
        if self.ready:
            self._snapshots.consider(now_ms)
            self._snapshots.tick(now_ms, self.durable_n)

    def _set_wake(self, now_ms: int) -> None:
        parts = (self._campaign, self._promotion, self._leading, self._floor, self._publisher)
        wakes = [part.wake_at_ms for part in parts if part is not None]
        wakes += [self._watcher.wake_at_ms, self._registration.wake_at_ms, self._base.wake_at_ms]
        if self.ready:
            wakes.append(self._snapshots.wake_at_ms)
        if self.role is Role.STANDBY and self.ctx.view.leader is None and self._turn.comes_at_ms > now_ms:
            wakes.append(self._turn.comes_at_ms)
        self.wake_at_ms = min(wakes)

    # --- one view, one decision, one sentence ---

    def _decide(self, now_ms: int) -> None:
        if self._leading is None and self._promotion is None:
            self._decide_following(now_ms)
        elif self._leading is not None:
            self._check_key(now_ms)
        elif self._promotion is not None and self._promotion.overtaken():
            self._promotion.close()
            self._not_promoted(now_ms, f"The leader key of epoch {self._promotion.epoch} is gone.")
        self._tell(now_ms)

    def _decide_following(self, now_ms: int) -> None:
        replica = self.ctx.replica
        if replica.diverged:
            self._base.wants_peer = self._base.wants_leader = True
            self._rebuild(now_ms, replica.diverged)
            return
        if self._base.busy:
            return
        if not self._watcher.caught_up:
            if self.role is not Role.FOLLOWER:
                self._standing.become(Role.CATCHING_UP, f"Listing the journal after record {replica.mark.n}.")
        elif replica.set_aside:
            one = replica.set_aside[0]
            sentence = f"Not ready, record {one.n} is set aside: {one.reason}."
            self._standing.become(Role.CATCHING_UP, sentence, grave=True)
            if not self.forced:
                self._cure(now_ms, one.n)
                return
        elif not self._watcher.fresh(now_ms):
            self._standing.become(Role.CATCHING_UP, "The store has not been heard of for a while: not ready.")
        else:
            self._standing.become(Role.STANDBY, f"Applied the durable tail, record {replica.mark.n}.")
        if self._may_campaign(now_ms):
            self._campaign = Campaign(self.ctx, self._won, self._lost)
            self._campaign.start(now_ms)

    def _may_campaign(self, now_ms: int) -> bool:
        """Only a node that can reach the durable tail campaigns, or one that an operator has given the word."""
        view = self.ctx.view
        if view.leader is not None or view.paused or self._campaign is not None or not self._watcher.caught_up:
            return False
        return (self.role is Role.STANDBY or self.forced) and now_ms >= self._turn.comes_at_ms

    def _check_key(self, now_ms: int) -> None:
        """A leader whose key was seen to be another's, or gone, is not the leader any more."""
        leading, view = self._leading, self.ctx.view
        if leading is None or view.revision < leading.epoch or not self._watcher.caught_up:
            return
        if leading.phase is not Phase.RESIGNING and (view.leader is None or view.leader.epoch != leading.epoch):
            leading.end(now_ms, f"The leader key of epoch {leading.epoch} is gone.", clean=False)

    def _tell(self, now_ms: int) -> None:
        self._registration.want(now_ms, self._standing.value(self._snapshots.confirmed, self._base.pin_n))

    # --- leading ---

    def _lost(self, now_ms: int, sentence: str) -> None:
        self._campaign = None
        self._turn.again(now_ms)
        self.ctx.desk.say(sentence)

    def _won(self, now_ms: int, epoch: int, lease: int) -> None:
        self._campaign = None
        self._promotion = Promotion(
            self.ctx, epoch, lease, forced=self.forced, ready=self._promoted, failed=self._not_promoted
        )
        self._standing.become(Role.PROMOTING, f"Elected: epoch {epoch}.")
        self._promotion.start(now_ms)

    def _not_promoted(self, now_ms: int, sentence: str) -> None:
        promotion = self._promotion
        ensure(promotion is not None, "only a promotion can fail")
        assert promotion is not None
        self._promotion = None
        self.ctx.desk.do(DropLease(promotion.lease, revoke=True))
        self._turn.after_all_others(now_ms)
        self._standing.become(Role.CATCHING_UP, sentence)
        self._watcher.relist(now_ms)

    def _promoted(self, now_ms: int, ready: Ready) -> None:
        promotion = self._promotion
        assert promotion is not None
        self._promotion = None
        self.forced = False
        self._watcher.lead()
        self._standing.sentence = ready.sentence
        self._counts = ready.counts
        self._leading = Leading(self.ctx, promotion.epoch, promotion.lease, now_ms, began=self._began, over=self._over)
        self._leading.begin(now_ms, ready.handover_ms, owners_unheard=ready.owners_unheard)

    def _began(self, now_ms: int) -> None:
        leading = self._leading
        assert leading is not None
        self._publisher = self._standing.history = Publisher(self.ctx, leading.epoch, leading.lease)
        self._floor = Floor(self.ctx, leading.epoch, now_ms, self._standing.warn)
        self._standing.become(Role.PRIMARY, self.sentence, counts=self._counts)
        self._publisher.publish()
        self._publisher.trim_history()

    def _switchover(self, now_ms: int, target: str) -> None:
        leading = self._leading
        if leading is None or leading.phase is not Phase.SERVING:
            self.ctx.desk.say("Nothing to hand over: this node is not the primary.")
            return
        others = [node for name, node in self.ctx.view.nodes.items() if name != self.identity.name and node.ready]
        if not others or (target and all(node.name != target for node in others)):
            self.ctx.desk.say(
                f"No hand-over: {target} is not ready." if target else "No hand-over: no other node is ready."
            )
            return
        heir = target or "whoever is ready"
        self._standing.become(Role.STEPPING_DOWN, f"Switchover asked for: handing over to {heir}.")
        leading.hand_over(now_ms, target)

    def _over(self, now_ms: int, sentence: str, clean: bool) -> None:
        """The epoch has ended here. Unless everything decided is durable, the state cannot be trusted: rebuild."""
        leading = self._leading
        assert leading is not None
        self._leading = None
        for part in (self._floor, self._publisher):
            if part is not None:
                part.close()
        self._floor = self._publisher = self._standing.history = None
        self.ctx.desk.do(DropLease(leading.lease, revoke=True))
        self._watcher.journal = True
        self._turn.after_all_others(now_ms)
        if clean:
            self.ctx.replica.follow(leading.bulk_written, leading.handover)
            self._standing.become(Role.CATCHING_UP, sentence)
            self._watcher.relist(now_ms)
        else:
            self._rebuild(now_ms, sentence)

    def _lease_lost(self, now_ms: int, lease: int) -> None:
        self._registration.lease_lost(now_ms, lease)
        if self._campaign is not None:
            self._campaign.lease_lost(now_ms, lease)
        if self._promotion is not None and self._promotion.lease == lease:
            self._promotion.close()
            self._not_promoted(now_ms, "The lease ended before the promotion was done.")
        if self._leading is not None and self._leading.lease == lease:
            self._leading.end(now_ms, f"The lease of epoch {self._leading.epoch} has ended.", clean=False)

    def _buffer_failed(self, now_ms: int, reason: str) -> None:
        if self._promotion is not None:
            self._promotion.drain_failed(now_ms, reason)
        elif self._leading is not None:
            self.ctx.desk.say(f"The buffer is away ({reason}): acknowledgements wait for the store.", grave=True)
            self._leading.push_failed(now_ms)

    # --- rebuilding ---

    def _rebuild(self, now_ms: int, reason: str) -> None:
        """Forget the state and read it anew: a snapshot (ours, or a peer's if ours does not do), then the journal."""
        if self._promotion is not None:
            self._promotion.close()
            self._not_promoted(now_ms, reason)
        self._snapshots.abandon()
        self.ctx.replica.reset()
        self._standing.become(Role.FOLLOWER, f"Rebuilding: {reason.rstrip('.')}.")
        self._base.again(now_ms)

    def _cure(self, now_ms: int, n: int) -> None:
        """A peer's snapshot whose end is past a record that cannot be applied replaces it."""
        if self._base.peer_covers(n):
            self._base.wants_peer = True
            self._rebuild(now_ms, f"a peer's snapshot is past record {n}")

    def _snapshot_read(self, now_ms: int, event: SnapshotRead) -> None:
        if not self._base.reading:
            return
        own = self._base.answered(event)
        if own is not None:
            self._snapshots.known(now_ms, own)
        self._standing.become(Role.CATCHING_UP, f"Listing the journal after record {self.ctx.replica.mark.n}.")
        self._watcher.relist(now_ms)
