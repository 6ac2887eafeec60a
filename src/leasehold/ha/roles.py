"""The role of a node and its changes: follower, standby, candidate, being promoted, leader.

One view, one decision, one sentence: `decide` looks at everything known and chooses the role. The activities
(`Campaign`, `Promotion`, `Leading`, ...) start and end with the roles, and report their outcomes here.
"""

from __future__ import annotations

from leasehold.base.invariants import ensure
from leasehold.ha.context import Context
from leasehold.ha.effects import DropLease, Role
from leasehold.ha.election import Campaign, Turn
from leasehold.ha.events import SnapshotRead
from leasehold.ha.feature_level import obstacle
from leasehold.ha.forged_key import ForgedKey
from leasehold.ha.leading import Leading, Phase
from leasehold.ha.promotion import Promotion, PromotionResult
from leasehold.ha.publisher import Publisher
from leasehold.ha.registration import Registration
from leasehold.ha.restore import Restore
from leasehold.ha.role_status import RoleStatus
from leasehold.ha.snapshot_schedule import SnapshotSchedule
from leasehold.ha.steps import Steps
from leasehold.ha.truncation import Truncation
from leasehold.ha.view import Leader
from leasehold.ha.watcher import Watcher

NO_CONTACT = "Not ready: no recent contact with the store."


class Roles:
    """At most one of `campaign`, `promotion` and `leading` is set at a time; a follower has none of them."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.status = RoleStatus(ctx)
        self.forced = False  # an operator allows this node to lead with the records that it has
        self.watcher = Watcher(ctx, self._rebuild)
        self.registration = Registration(ctx)
        self.snapshots = SnapshotSchedule(ctx)
        self.restore = Restore(ctx)
        self.campaign: Campaign | None = None
        self.promotion: Promotion | None = None
        self.leading: Leading | None = None
        self.truncation: Truncation | None = None
        self._turn = Turn(ctx)
        self._forged_key = ForgedKey(ctx)
        self._restored_revision = 0  # the last write of the leader key that this leader has overwritten
        self.forgeries = 0  # forged values of the leader key that this node has restored
        self._publisher: Publisher | None = None
        self._counts: dict[str, int] = {}  # of the last promotion

    # --- time ---

    def tick(self, now_ms: int, durable_n: int) -> None:
        """Do everything that is due."""
        self.watcher.tick(now_ms)
        if self.leading is None:
            self._ctx.state.journal_length.truncate(self._ctx.view.truncated_n)
        self.registration.tick(now_ms)
        if self.campaign is not None:
            self.campaign.tick(now_ms)
        if self.promotion is not None:
            self.promotion.tick(now_ms)
        if self.leading is not None:
            self.leading.tick(now_ms)
        if self.truncation is not None:
            self.truncation.tick(now_ms)
        if self._publisher is not None:
            self._publisher.tick(now_ms)
        self.restore.tick(now_ms)
        if self.leading is None and self.promotion is None:
            self._forged_key.follow(now_ms)
        else:
            self._forged_key.rest()
        self._ctx.state.discard_some()
        if self.status.ready:
            self.snapshots.consider(now_ms)
            self.snapshots.tick(now_ms, durable_n)

    def wake_at_ms(self, now_ms: int) -> int:
        """When the next work is due."""
        if self._ctx.state.discarding:
            return now_ms
        parts = (self.campaign, self.promotion, self.leading, self.truncation, self._publisher)
        wakes = [part.wake_at_ms for part in parts if part is not None]
        wakes += [self.watcher.wake_at_ms, self.registration.wake_at_ms, self.restore.wake_at_ms]
        wakes.append(self._forged_key.wake_at_ms)
        if self.status.ready:
            wakes.append(self.snapshots.wake_at_ms)
        if self.status.role is Role.STANDBY and self._ctx.view.leader is None and self._turn.comes_at_ms > now_ms:
            wakes.append(self._turn.comes_at_ms)
        return min(wakes)

    # --- one view, one decision, one sentence ---

    def decide(self, now_ms: int) -> None:
        """After every event: choose the role and publish it."""
        if self.leading is None and self.promotion is None:
            self._decide_following(now_ms)
        elif self.leading is not None:
            self._check_key(now_ms)
        elif self.promotion is not None and self.promotion.overtaken():
            self.promotion.close()
            self._not_promoted(now_ms, f"The leader key of epoch {self.promotion.epoch} was lost.")
        self._publish(now_ms)

    def awake(self, now_ms: int) -> None:
        """An event arrives, perhaps after a long pause."""
        if self.leading is None:
            self.watcher.awake(now_ms)

    def at_work(self, now_ms: int) -> None:
        """An event needs more steps: a standby that was stopped in the middle of it is not ready."""
        if self.status.role is Role.STANDBY and not self.watcher.fresh(now_ms):
            self.status.become(Role.CATCHING_UP, NO_CONTACT)

    def _decide_following(self, now_ms: int) -> None:
        state = self._ctx.state
        leader = self._ctx.view.leader
        if self.forced and leader is not None and leader.value.run != self._ctx.identity.run:
            self.forced = False  # another node leads: the order has lost its reason
        if state.diverged:
            self.restore.prefer_leader()
            self._rebuild(now_ms, state.diverged)
            return
        if self.restore.busy:
            return
        if not self.watcher.caught_up:
            if self.status.role is not Role.FOLLOWER:
                self.status.become(Role.CATCHING_UP, f"Listing the journal after record {state.applied.n}.")
        elif state.quarantined_records:
            one = state.quarantined_records[0]
            sentence = f"Not ready: record {one.n} is quarantined ({one.reason})."
            self.status.become(Role.CATCHING_UP, sentence, serious=True)
            if not self.forced:
                self._replace_quarantined(now_ms, one.n)
                return
        elif not self.watcher.fresh(now_ms):
            self.status.become(Role.CATCHING_UP, NO_CONTACT)
        else:
            self.status.become(Role.STANDBY, f"Applied the durable tail, record {state.applied.n}.")
        if self._may_campaign(now_ms):
            self.campaign = Campaign(self._ctx, self._won, self._lost)
            self.campaign.start(now_ms)

    def force(self) -> None:
        """An operator allows this node to lead despite quarantined records or an unreachable buffer.

        Only now: an order to a node that leads must not take effect in a later promotion.
        """
        self.forced = self.leading is None

    def _may_campaign(self, now_ms: int) -> bool:
        """Only a node with the durable tail campaigns, or one that an operator forced."""
        view = self._ctx.view
        if view.leader is not None or view.paused or self.campaign is not None or not self.watcher.caught_up:
            return False
        return (self.status.role is Role.STANDBY or self.forced) and now_ms >= self._turn.comes_at_ms

    def _check_key(self, now_ms: int) -> None:
        """A leader that sees its key deleted or taken by another node is deposed."""
        leading, view = self.leading, self._ctx.view
        if leading is None or view.revision < leading.epoch or not self.watcher.caught_up:
            return
        if leading.phase is not Phase.RESIGNING and (view.leader is None or view.leader.epoch != leading.epoch):
            leading.end(now_ms, f"The leader key of epoch {leading.epoch} was lost.", clean=False)
            return
        if view.leader is not None and view.leader.revision > self._restored_revision:
            self._check_value(leading, view.leader)

    def _check_value(self, leading: Leading, leader: Leader) -> None:
        """A client of the store may have overwritten the value, or the cluster's secret has changed: write it again.

        Without this, clients would be forwarded to another address, and the key would outlive this leader's lease.
        """
        own = self._ctx.leader_value(leading.lease)
        if leader.lease == leading.lease and leader.value == own:
            return
        self._restored_revision = leader.revision
        forged = leader.lease != leading.lease or leader.value.run != own.run or leader.value.door != own.door
        if forged:
            self.forgeries += 1
            self.status.warn(f"The leader key was overwritten: it named '{leader.value.name}'. Restoring it.")
        leading.restore_key(leading.lease)

    def _publish(self, now_ms: int) -> None:
        self.registration.want(now_ms, self.status.value(self.snapshots.confirmed, self.restore.pin_n))
        if self._ctx.identity.name in self._ctx.view.rejected:
            self.registration.write_again(now_ms)

    # --- leading ---

    def _lost(self, now_ms: int, sentence: str) -> None:
        self.campaign = None
        self._turn.again(now_ms)
        self._ctx.effects.say(sentence)

    def _won(self, now_ms: int, epoch: int, lease: int) -> None:
        self.campaign = None
        self.promotion = Promotion(
            self._ctx, epoch, lease, forced=self.forced, ready=self._promoted, failed=self._not_promoted
        )
        self.status.become(Role.PROMOTING, f"Elected: epoch {epoch}.")
        self.promotion.start(now_ms)

    def _not_promoted(self, now_ms: int, sentence: str) -> None:
        promotion = self.promotion
        ensure(promotion is not None, "only a promotion can fail")
        assert promotion is not None
        self.promotion = None
        self._ctx.effects.do(DropLease(promotion.lease, revoke=True))
        self._turn.after_all_others(now_ms)
        self.status.become(Role.CATCHING_UP, sentence)
        self.watcher.relist(now_ms)

    def _promoted(self, now_ms: int, result: PromotionResult) -> None:
        promotion = self.promotion
        assert promotion is not None
        self.promotion = None
        self.forced = False
        self.watcher.lead()
        self.status.elected(result.sentence)
        self._counts = result.counts
        self.leading = Leading(self._ctx, promotion.epoch, promotion.lease, now_ms, began=self._began, over=self._over)
        self.leading.begin(
            now_ms, result.handover_ms, owners_unheard=result.owners_unheard, spoke_ms=result.last_write_ms
        )

    def _began(self, now_ms: int) -> None:
        leading = self.leading
        assert leading is not None
        self._publisher = Publisher(self._ctx, leading.epoch, leading.lease)
        self.status.write_history_to(self._publisher)
        self.truncation = Truncation(self._ctx, leading.epoch, now_ms, self.status.warn)
        self.status.become(Role.PRIMARY, self.status.sentence, counts=self._counts)
        self._publisher.publish()
        self._publisher.trim_history()

    def switchover(self, now_ms: int, target: str) -> None:
        """An operator requests a hand-over to `target`, or to any ready node."""
        leading = self.leading
        if leading is None or leading.phase is not Phase.SERVING:
            self._ctx.effects.say("Nothing to hand over: this node is not the primary.")
            return
        others = [node for name, node in self._ctx.view.nodes.items() if name != self._ctx.identity.name and node.ready]
        if not others or (target and all(node.name != target for node in others)):
            self._ctx.effects.say(
                f"No hand-over: {target} is not ready." if target else "No hand-over: no other node is ready."
            )
            return
        successor = target or "any ready node"
        self.status.become(Role.STEPPING_DOWN, f"Switchover requested: handing over to {successor}.")
        leading.hand_over(now_ms, target)

    def switch_level(self, now_ms: int, level: int) -> None:
        """An operator requests another feature level."""
        leading, index = self.leading, self._ctx.state.index
        if leading is None or leading.phase is not Phase.SERVING:
            self._ctx.effects.say("The feature level stays: this node is not the primary.")
            return
        present = index.features.level
        if reason := obstacle(level, present, self._ctx.view.nodes.values()):
            self._ctx.effects.say(f"The feature level stays: {reason}.")
            return
        n = index.set_feature_level(leading.leader_ms(now_ms), level)
        leading.decided(now_ms)
        self.status.warn(
            f"The feature level is {level} from record {n} on, as an operator requested; it was {present}."
        )

    def _over(self, now_ms: int, sentence: str, clean: bool) -> None:
        """The epoch ended. Unless every decided record is durable, the state cannot be trusted: rebuild it."""
        leading = self.leading
        assert leading is not None
        self.leading = None
        for part in (self.truncation, self._publisher):
            if part is not None:
                part.close()
        self.truncation = self._publisher = None
        self.status.write_history_to(None)
        self._ctx.effects.do(DropLease(leading.lease, revoke=True))
        self.watcher.follow()
        self._turn.after_all_others(now_ms)
        if clean:
            self._ctx.state.follow(leading.unlogged_written, leading.handover)
            self.status.become(Role.CATCHING_UP, sentence)
            self.watcher.relist(now_ms)
        else:
            self._rebuild(now_ms, sentence)

    def lease_lost(self, now_ms: int, lease: int) -> None:
        """A lease of this node expired: end the activity that depends on it."""
        self.registration.lease_lost(now_ms, lease)
        if self.campaign is not None:
            self.campaign.lease_lost(now_ms, lease)
        if self.promotion is not None and self.promotion.lease == lease:
            self.promotion.close()
            self._not_promoted(now_ms, "The lease expired before the promotion was complete.")
        if self.leading is not None and self.leading.lease == lease:
            self.leading.end(now_ms, f"The lease of epoch {self.leading.epoch} expired.", clean=False)

    def buffer_failed(self, now_ms: int, reason: str) -> None:
        """The buffer cannot be drained or written."""
        if self.promotion is not None:
            self.promotion.drain_failed(now_ms, reason)
        elif self.leading is not None:
            sentence = f"The buffer cannot be reached ({reason}): acknowledgements wait for the store."
            self._ctx.effects.say(sentence, serious=True)
            self.leading.push_failed(now_ms)

    # --- rebuilding ---

    def _rebuild(self, now_ms: int, reason: str) -> None:
        """Discard the state and read it again: a snapshot (this node's or a peer's), then the journal."""
        if self.promotion is not None:
            self.promotion.close()
            self._not_promoted(now_ms, reason)
        self.snapshots.abandon()
        self._ctx.state.reset()
        self.status.become(Role.FOLLOWER, f"Rebuilding: {reason.rstrip('.')}.")
        self.restore.again(now_ms)

    def _replace_quarantined(self, now_ms: int, n: int) -> None:
        """Rebuild from a peer's snapshot that includes the quarantined record, if there is one."""
        if self.restore.peer_covers(n):
            self.restore.prefer_peer()
            self._rebuild(now_ms, f"a peer's snapshot includes record {n}")

    def snapshot_read(self, now_ms: int, event: SnapshotRead) -> Steps[None]:
        """The requested snapshot was read, or there is none: list the journal after it."""
        if not self.restore.reading:
            return
        own = yield from self.restore.answered(event)
        if own is not None:
            self.snapshots.known(now_ms, own)
        self.status.become(Role.CATCHING_UP, f"Listing the journal after record {self._ctx.state.applied.n}.")
        self.watcher.relist(now_ms)
