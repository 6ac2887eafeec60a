"""A node's state as a function of the journal: index, mark, bulk, and what could not be applied. Pure.

Whether it came by watch, by list or out of a buffer makes no difference: explicit records are applied once, in the
chain's order, above one mark; bulk counts when its place in the order has come.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from leasehold.base.errors import LeaseholdError
from leasehold.base.limits import replay_piece_objects
from leasehold.ha.leader_lease import NEVER_MS
from leasehold.ha.steps import Pieces
from leasehold.index.index import Index
from leasehold.index.records import NEVER_MS as NO_HANDOVER_MS
from leasehold.index.records import Begin, Handover, Record, RemoveRange
from leasehold.index.state import NotHere
from leasehold.journal.batch import (
    NOT_STATED,
    ExplicitBatch,
    UnloggedBatch,
    UnreadableBatch,
    decode_explicit,
    decode_unlogged,
)
from leasehold.journal.chain import Fit, Position, fit
from leasehold.journal.length import Ledger
from leasehold.journal.snapshot_file import Loaded, stepping
from leasehold.journal.unlogged_reader import UnloggedReader


class Took(Enum):
    """What became of a batch that was offered."""

    APPLIED = "applied"
    OLD = "old"
    GAP = "gap"  # list again: something before it is missing
    FORK = "fork"  # rebuild: this state holds what never became durable
    SET_ASIDE = "set aside"  # unreadable, or it could not be applied: not ready until cured


class SetAside(Struct, frozen=True):
    """A batch that could not be applied, by the number of its first record."""

    n: int
    reason: str


class LastWrite(Struct, frozen=True):
    """The newest write of the newest epoch that this node has seen, on this node's clock.

    `live`: seen as it happened, while that epoch's leader held its key. What was found by listing may be of any age,
    and so may what a successor attaches from a dead leader's buffer.
    """

    epoch: int = 0
    seen_ms: int = NEVER_MS
    right_ms: int = 0
    live: bool = False


class SignOfLife(Struct, frozen=True):
    """The newest bulk batch: only a worker writes those. What a guardian writes for a dead one is no sign of life.

    `live`: as above.
    `after_ms`: it was not written before this moment, as far as is known (what is heard may be old news).
    """

    live: bool = False
    after_ms: int = NEVER_MS


class AppliedState:
    """The standby's half of the state; the primary goes on with the same `index`."""

    __slots__ = (
        "_bulk_seen",
        "_bulks_to_hear",
        "_cleared_before",
        "_lacked_n",
        "_make",
        "_unheard_told_n",
        "applied",
        "diverged",
        "handover",
        "heard",
        "index",
        "last_write",
        "ledger",
        "piece_objects",
        "quarantined_records",
        "records_applied",
        "torn",
        "unexplained",
        "unlogged",
    )

    def __init__(self, make_index: Callable[[], Index]) -> None:
        self._make = make_index
        self.piece_objects = replay_piece_objects
        self._lacked_n = 0  # the last record that cost a rebuild because its object was not here
        self.reset()

    def reset(self) -> None:
        """Forget everything: what follows is a rebuild."""
        self.index = self._make()
        self.applied = Position()
        self.unlogged = UnloggedReader()
        self.ledger = Ledger()
        self.handover: Handover | None = None  # if it is the last record of the chain
        self.quarantined_records: list[SetAside] = []
        self.torn: ExplicitBatch | None = None  # the batch in whose middle the first record set aside stands
        self.diverged = ""
        self.unexplained = False  # a renewal of this epoch named what is not here
        self.records_applied = 0
        self.last_write = LastWrite()
        self.heard = SignOfLife()
        self._bulks_to_hear = 0  # until what is told of the owners of memory counts: see `_hear`
        self._bulk_seen = (0, 0)
        self._unheard_told_n = NOT_STATED  # by the newest bulk batch that was seen, also one whose place has not come
        self._cleared_before = (0, 0, 0)

    def load(self, loaded: Loaded, step: Callable[[], None]) -> None:
        """Begin from a snapshot: replay goes on after its lowest slice."""
        self.reset()
        self.index.load(loaded.keyless, stepping(loaded.slices, step), stepping(loaded.quarantined, step))
        self.applied = loaded.low
        self.unlogged.begin(self.applied.epoch, known_from_start=False)

    def follow(self, unlogged_written: int, handover: Handover | None) -> None:
        """Go on with the state of an epoch that this node has led and cleanly handed over: that is its last record."""
        self.handover = handover
        self.unlogged = UnloggedReader()
        self.unlogged.begin(self.applied.epoch, known_from_start=True)
        self.unlogged.skip_to(unlogged_written)
        self.quarantined_records = []
        index = self.index
        self._cleared_before = (index.displaced_count, index.evicted_count, index.evicted_bytes)

    def cleared(self) -> tuple[int, int, int]:
        """Since this node follows: objects displaced by newer claims, objects evicted on the primary's word, bytes."""
        index, (displaced, evicted, evicted_bytes) = self.index, self._cleared_before
        return index.displaced_count - displaced, index.evicted_count - evicted, index.evicted_bytes - evicted_bytes

    def take_explicit(self, now_ms: int, n: int, raw: bytes, *, leads: int) -> Pieces[Took]:
        """One value of `journal/explicit/`, whose key says that its first record is `n`.

        `leads`: the epoch whose leader writes it now, as far as this node knows; 0 if it was found, not seen to happen.
        """
        try:
            batch = decode_explicit(raw)
        except UnreadableBatch as error:
            return self._put_aside(n, str(error)) if n > self.applied.n else Took.OLD
        if batch.first_n != n:
            return self._put_aside(n, f"batch {batch.first_n} stands in slot {n}")
        if n + len(batch.records) > self.applied.n + 1 or batch.epoch > self.last_write.epoch:
            self._saw(now_ms, batch.epoch, batch.right_ms, leads)
        took = yield from self.take_batch(batch)
        if took is Took.APPLIED:
            self.ledger.saw(n, len(raw))
        return took

    def take_batch(self, batch: ExplicitBatch) -> Pieces[Took]:
        """A decoded batch; see `Took`. Between its pieces this node is where it would be had the batch ended there."""
        verdict = fit(self.applied, batch)
        if verdict is Fit.OLD:
            return Took.OLD
        if verdict is Fit.GAP:
            return Took.GAP
        if verdict is Fit.FORK:
            return Took.FORK
        touched = 0
        for at, record in enumerate(batch.records, start=batch.first_n):
            if at <= self.applied.n:
                continue
            if touched >= self.piece_objects:
                touched = 0
                yield
            try:
                self._apply(batch.epoch, at, record)
            except LeaseholdError as error:
                self.torn = batch if at > batch.first_n else None
                if isinstance(error, NotHere) and at != self._lacked_n:
                    # What was evicted here by an older leader's word, another leader still has, and copies. It is no
                    # fault of the record: the leader's snapshot has the object. Once; then it is set aside as others.
                    self._lacked_n = at
                    self.diverged = str(error)
                return self._put_aside(at, f"record {at} cannot be applied: {error}")
            if self.unlogged.waiting:
                yield from self._count_bulk()  # at its very place in the order: only there can divergence be told
            touched += 1 if type(record) is not RemoveRange else self.piece_objects  # which is a piece of its own
        if self.quarantined_records:
            # A slot that could not be applied was given up by an operator's word, and the chain goes on in its place.
            self.quarantined_records = [one for one in self.quarantined_records if one.n > self.applied.n]
        return Took.APPLIED

    def _apply(self, epoch: int, n: int, record: Record) -> None:
        self.index.apply(n, record)
        self.applied = Position(epoch, n)
        self.records_applied += 1
        if isinstance(record, Begin):
            self._begin(epoch, record)
        self.handover = record if isinstance(record, Handover) else None

    def _begin(self, epoch: int, record: Begin) -> None:
        """A new epoch. After a hand-over lease ends go on as they were, also those that this node never heard of."""
        handed_over, before = record.handover_ms != NO_HANDOVER_MS, self.handover
        unknown = handed_over and (before is None or not self.unlogged.has_all_to(before.last_unlogged))
        self.unlogged.begin(epoch, known_from_start=True)
        self.unexplained = False
        if unknown:
            self.unlogged.gap_closed_ms = 0
            self.index.gap_closed(record.drift_ms)  # ends that were handed over are mapped later by so much

    def take_unlogged(self, now_ms: int, raw: bytes, *, leads: int, after_ms: int = NEVER_MS) -> Pieces[None]:
        """One value of `journal/bulk/`; `leads` as above. A damaged one is as good as lost: its number leaves a gap."""
        try:
            batch = decode_unlogged(raw)
        except UnreadableBatch:
            return
        if (batch.epoch, batch.number) > self._bulk_seen:
            self._bulk_seen = (batch.epoch, batch.number)
            self._unheard_told_n = batch.unheard_n
            self._saw(now_ms, batch.epoch, batch.right_ms, leads)
            self._hear(now_ms, SignOfLife(batch.epoch == leads, after_ms))
        self.unlogged.offer(batch)
        yield from self._count_bulk()

    def _count_bulk(self) -> Pieces[None]:
        for batch in self.unlogged.due(self.applied):
            yield from self._apply_bulk(batch)

    def _apply_bulk(self, batch: UnloggedBatch) -> Pieces[None]:
        index, every = self.index, self.piece_objects
        for place, one in enumerate(batch.renewals, start=1):
            if place % every == 0:
                yield
            known = index.apply_renewal(one.tenant, one.key, one.put_seq, one.lease_end_ms, one.soft_pin_end_ms)
            if known:
                continue
            if batch.as_of_n == self.applied.n and index.covered_n is None:
                # The primary has, as of this very record, an object that this node lacks: nothing explains that.
                self.diverged = f"the primary renews {one.key!r} (put {one.put_seq}), which this node does not have"
            else:
                self.unexplained = True  # it may have been removed since, or never have been here
        for place, hint in enumerate(batch.hints, start=1):
            if place % every == 0:
                yield
            index.apply_hint(hint.tenant, hint.key, hint.put_seq)
        while index.observe(batch.leader_ms):
            yield
        if batch.unheard_n != NOT_STATED:
            index.unheard_n = batch.unheard_n
        if self.unlogged.gap_closed_ms == batch.leader_ms:
            index.gap_closed(batch.leader_ms)
        if batch.complete and batch.expires:  # by the leader's policy: ours may be another one
            yield from index.expiring(batch.leader_ms, every)

    def _hear(self, now_ms: int, unlogged: SignOfLife) -> None:
        """A leader is alive, and hears the owners of memory; unless it was silent for longer than they are believed in.

        It may not have noticed that when it wrote this one; the next one tells (H9).
        """
        if now_ms - self.heard.after_ms > self.index.settings.client_ttl_ms:
            self._bulks_to_hear = 1
        elif self._bulks_to_hear:
            self._bulks_to_hear -= 1
        self.heard = unlogged

    def owners_heard(self, now_ms: int) -> bool:
        """Whether a leader is known to have heard the owners of memory lately, or has told of those that it has not."""
        lately = now_ms - self.heard.after_ms <= self.index.settings.client_ttl_ms
        return self.heard.live and lately and not self._bulks_to_hear

    def unheard_n(self) -> int:
        """Owners of segments mounted before this record are waited for by the last leader, as far as it has told."""
        told_n = self._unheard_told_n if self._bulk_seen[0] == self.applied.epoch else NOT_STATED
        return max(self.index.unheard_n, told_n)

    def _put_aside(self, n: int, reason: str) -> Took:
        if all(one.n != n for one in self.quarantined_records):
            self.quarantined_records.append(SetAside(n, reason))
        return Took.SET_ASIDE

    def _saw(self, now_ms: int, epoch: int, right_ms: int, leads: int) -> None:
        """Remember when the newest epoch was last seen writing: a successor counts its wait from there."""
        if epoch >= self.last_write.epoch:
            self.last_write = LastWrite(epoch, now_ms, right_ms, epoch == leads)
