"""What a node is, from event to event: follower, candidate, being promoted, leader; and how it changes.

One view, one decision, one sentence: `decide` looks at what is known and says what this node becomes. The activities
(`Campaign`, `Promotion`, `Leading`, ...) come and go with the roles, and tell here how they have ended.
"""

from __future__ import annotations

from leasehold.base.invariants import ensure
from leasehold.ha.context import Context
from leasehold.ha.effects import DropLease, Role
from leasehold.ha.election import Campaign, Turn
from leasehold.ha.events import SnapshotRead
from leasehold.ha.leading import Leading, Phase
from leasehold.ha.promotion import Promotion, Ready
from leasehold.ha.publisher import Publisher
from leasehold.ha.registration import Registration
from leasehold.ha.restore import Base
from leasehold.ha.role_status import Standing
from leasehold.ha.snapshot_schedule import Snapshots
from leasehold.ha.truncation import Truncation
from leasehold.ha.watcher import Watcher

NOT_HEARD = "The store has not been heard of for a while: not ready."


class Roles:
    """At most one of `campaign`, `promotion` and `leading` is there at a time; a follower has none of them."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.standing = Standing(ctx)
        self.forced = False  # an operator has given the word: lead with what is here
        self.watcher = Watcher(ctx, self._rebuild)
        self.registration = Registration(ctx)
        self.snapshots = Snapshots(ctx)
        self.base = Base(ctx)
        self.campaign: Campaign | None = None
        self.promotion: Promotion | None = None
        self.leading: Leading | None = None
        self.floor: Truncation | None = None
        self._turn = Turn(ctx)
        self._publisher: Publisher | None = None
        self._counts: dict[str, int] = {}  # of the last promotion

    # --- by the clock ---

    def tick(self, now_ms: int, durable_n: int) -> None:
        """Everything that is due by the clock."""
        self.watcher.tick(now_ms)
        if self.leading is None:
            self._ctx.state.ledger.trimmed(self._ctx.view.truncated_n)
        self.registration.tick(now_ms)
        if self.campaign is not None:
            self.campaign.tick(now_ms)
        if self.promotion is not None:
            self.promotion.tick(now_ms)
        if self.leading is not None:
            self.leading.tick(now_ms)
        if self.floor is not None:
            self.floor.tick(now_ms)
        if self._publisher is not None:
            self._publisher.tick(now_ms)
        self.base.tick(now_ms)
        if self.standing.ready:
            self.snapshots.consider(now_ms)
            self.snapshots.tick(now_ms, durable_n)

    def wake_at_ms(self, now_ms: int) -> int:
        """When something is due next."""
        parts = (self.campaign, self.promotion, self.leading, self.floor, self._publisher)
        wakes = [part.wake_at_ms for part in parts if part is not None]
        wakes += [self.watcher.wake_at_ms, self.registration.wake_at_ms, self.base.wake_at_ms]
        if self.standing.ready:
            wakes.append(self.snapshots.wake_at_ms)
        if self.standing.role is Role.STANDBY and self._ctx.view.leader is None and self._turn.comes_at_ms > now_ms:
            wakes.append(self._turn.comes_at_ms)
        return min(wakes)

    # --- one view, one decision, one sentence ---

    def decide(self, now_ms: int) -> None:
        """After every event: what this node becomes, in view of what is known; and the others are told."""
        if self.leading is None and self.promotion is None:
            self._decide_following(now_ms)
        elif self.leading is not None:
            self._check_key(now_ms)
        elif self.promotion is not None and self.promotion.overtaken():
            self.promotion.close()
            self._not_promoted(now_ms, f"The leader key of epoch {self.promotion.epoch} is gone.")
        self._tell(now_ms)

    def awake(self, now_ms: int) -> None:
        """Something happens to this node, perhaps after a long time in which nothing did."""
        if self.leading is None:
            self.watcher.awake(now_ms)

    def at_work(self, now_ms: int) -> None:
        """There is more to do about an event: whoever was stopped in the middle of it is not ready."""
        if self.standing.role is Role.STANDBY and not self.watcher.fresh(now_ms):
            self.standing.become(Role.CATCHING_UP, NOT_HEARD)

    def _decide_following(self, now_ms: int) -> None:
        state = self._ctx.state
        if state.diverged:
            self.base.wants_peer = self.base.wants_leader = True
            self._rebuild(now_ms, state.diverged)
            return
        if self.base.busy:
            return
        if not self.watcher.caught_up:
            if self.standing.role is not Role.FOLLOWER:
                self.standing.become(Role.CATCHING_UP, f"Listing the journal after record {state.applied.n}.")
        elif state.quarantined_records:
            one = state.quarantined_records[0]
            sentence = f"Not ready, record {one.n} is set aside: {one.reason}."
            self.standing.become(Role.CATCHING_UP, sentence, serious=True)
            if not self.forced:
                self._cure(now_ms, one.n)
                return
        elif not self.watcher.fresh(now_ms):
            self.standing.become(Role.CATCHING_UP, NOT_HEARD)
        else:
            self.standing.become(Role.STANDBY, f"Applied the durable tail, record {state.applied.n}.")
        if self._may_campaign(now_ms):
            self.campaign = Campaign(self._ctx, self._won, self._lost)
            self.campaign.start(now_ms)

    def _may_campaign(self, now_ms: int) -> bool:
        """Only a node that can reach the durable tail campaigns, or one that an operator has given the word."""
        view = self._ctx.view
        if view.leader is not None or view.paused or self.campaign is not None or not self.watcher.caught_up:
            return False
        return (self.standing.role is Role.STANDBY or self.forced) and now_ms >= self._turn.comes_at_ms

    def _check_key(self, now_ms: int) -> None:
        """A leader whose key was seen to be another's, or gone, is not the leader any more."""
        leading, view = self.leading, self._ctx.view
        if leading is None or view.revision < leading.epoch or not self.watcher.caught_up:
            return
        if leading.phase is not Phase.RESIGNING and (view.leader is None or view.leader.epoch != leading.epoch):
            leading.end(now_ms, f"The leader key of epoch {leading.epoch} is gone.", clean=False)

    def _tell(self, now_ms: int) -> None:
        self.registration.want(now_ms, self.standing.value(self.snapshots.confirmed, self.base.pin_n))

    # --- leading ---

    def _lost(self, now_ms: int, sentence: str) -> None:
        self.campaign = None
        self._turn.again(now_ms)
        self._ctx.desk.say(sentence)

    def _won(self, now_ms: int, epoch: int, lease: int) -> None:
        self.campaign = None
        self.promotion = Promotion(
            self._ctx, epoch, lease, forced=self.forced, ready=self._promoted, failed=self._not_promoted
        )
        self.standing.become(Role.PROMOTING, f"Elected: epoch {epoch}.")
        self.promotion.start(now_ms)

    def _not_promoted(self, now_ms: int, sentence: str) -> None:
        promotion = self.promotion
        ensure(promotion is not None, "only a promotion can fail")
        assert promotion is not None
        self.promotion = None
        self._ctx.desk.do(DropLease(promotion.lease, revoke=True))
        self._turn.after_all_others(now_ms)
        self.standing.become(Role.CATCHING_UP, sentence)
        self.watcher.relist(now_ms)

    def _promoted(self, now_ms: int, ready: Ready) -> None:
        promotion = self.promotion
        assert promotion is not None
        self.promotion = None
        self.forced = False
        self.watcher.lead()
        self.standing.sentence = ready.sentence
        self._counts = ready.counts
        self.leading = Leading(self._ctx, promotion.epoch, promotion.lease, now_ms, began=self._began, over=self._over)
        self.leading.begin(now_ms, ready.handover_ms, owners_unheard=ready.owners_unheard, spoke_ms=ready.spoke_ms)

    def _began(self, now_ms: int) -> None:
        leading = self.leading
        assert leading is not None
        self._publisher = self.standing.history = Publisher(self._ctx, leading.epoch, leading.lease)
        self.floor = Truncation(self._ctx, leading.epoch, now_ms, self.standing.warn)
        self.standing.become(Role.PRIMARY, self.standing.sentence, counts=self._counts)
        self._publisher.publish()
        self._publisher.trim_history()

    def switchover(self, now_ms: int, target: str) -> None:
        """An operator asks this node to hand over: to `target`, or to whoever is ready."""
        leading = self.leading
        if leading is None or leading.phase is not Phase.SERVING:
            self._ctx.desk.say("Nothing to hand over: this node is not the primary.")
            return
        others = [node for name, node in self._ctx.view.nodes.items() if name != self._ctx.identity.name and node.ready]
        if not others or (target and all(node.name != target for node in others)):
            self._ctx.desk.say(
                f"No hand-over: {target} is not ready." if target else "No hand-over: no other node is ready."
            )
            return
        heir = target or "whoever is ready"
        self.standing.become(Role.STEPPING_DOWN, f"Switchover asked for: handing over to {heir}.")
        leading.hand_over(now_ms, target)

    def _over(self, now_ms: int, sentence: str, clean: bool) -> None:
        """The epoch has ended here. Unless everything decided is durable, the state cannot be trusted: rebuild."""
        leading = self.leading
        assert leading is not None
        self.leading = None
        for part in (self.floor, self._publisher):
            if part is not None:
                part.close()
        self.floor = self._publisher = self.standing.history = None
        self._ctx.desk.do(DropLease(leading.lease, revoke=True))
        self.watcher.journal = True
        self._turn.after_all_others(now_ms)
        if clean:
            self._ctx.state.follow(leading.unlogged_written, leading.handover)
            self.standing.become(Role.CATCHING_UP, sentence)
            self.watcher.relist(now_ms)
        else:
            self._rebuild(now_ms, sentence)

    def lease_lost(self, now_ms: int, lease: int) -> None:
        """A lease of this node has ended: whatever stood on it has ended too."""
        self.registration.lease_lost(now_ms, lease)
        if self.campaign is not None:
            self.campaign.lease_lost(now_ms, lease)
        if self.promotion is not None and self.promotion.lease == lease:
            self.promotion.close()
            self._not_promoted(now_ms, "The lease ended before the promotion was done.")
        if self.leading is not None and self.leading.lease == lease:
            self.leading.end(now_ms, f"The lease of epoch {self.leading.epoch} has ended.", clean=False)

    def buffer_failed(self, now_ms: int, reason: str) -> None:
        """The buffer cannot be drained, or takes nothing."""
        if self.promotion is not None:
            self.promotion.drain_failed(now_ms, reason)
        elif self.leading is not None:
            self._ctx.desk.say(f"The buffer is away ({reason}): acknowledgements wait for the store.", serious=True)
            self.leading.push_failed(now_ms)

    # --- rebuilding ---

    def _rebuild(self, now_ms: int, reason: str) -> None:
        """Forget the state and read it anew: a snapshot (ours, or a peer's if ours does not do), then the journal."""
        if self.promotion is not None:
            self.promotion.close()
            self._not_promoted(now_ms, reason)
        self.snapshots.abandon()
        self._ctx.state.reset()
        self.standing.become(Role.FOLLOWER, f"Rebuilding: {reason.rstrip('.')}.")
        self.base.again(now_ms)

    def _cure(self, now_ms: int, n: int) -> None:
        """A peer's snapshot whose end is past a record that cannot be applied replaces it."""
        if self.base.peer_covers(n):
            self.base.wants_peer = True
            self._rebuild(now_ms, f"a peer's snapshot is past record {n}")

    def snapshot_read(self, now_ms: int, event: SnapshotRead) -> None:
        """The base that was asked for has come, or is not to be had: the journal after it is next."""
        if not self.base.reading:
            return
        own = self.base.answered(event)
        if own is not None:
            self.snapshots.known(now_ms, own)
        self.standing.become(Role.CATCHING_UP, f"Listing the journal after record {self._ctx.state.applied.n}.")
        self.watcher.relist(now_ms)
