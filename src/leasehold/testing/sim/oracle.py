"""Sees everything, and says at once when a promise is broken.

The truth is what stands in the store: every batch is read as it is written, and interpreted by a model of its own
(`truth`). What clients were told is held against it.
"""

from __future__ import annotations

from msgspec import Struct

from leasehold.base.codes import Code, TaskStatus
from leasehold.ha.events import StoreResult
from leasehold.ha.keys import Keys
from leasehold.index.records import NEVER_MS, Begin, Handover
from leasehold.journal.batch import decode_explicit
from leasehold.journal.fenced_writer import slot_number
from leasehold.mvcc.model import DeleteRange, Op, Put, Txn, TxnResult, prefix_end
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.clockwork import Clockwork, Violation
from leasehold.testing.sim.plan import BLOCK, Plan
from leasehold.testing.sim.truth import Truth


class Block(Struct, frozen=True, gc=False):
    """One block of real memory: whose, and which."""

    endpoint: str
    number: int


class Grant(Struct):
    """A lease that a reader was given, in true time."""

    key: bytes
    put_seq: int
    blocks: tuple[Block, ...]
    until_us: int
    reader: str
    given_us: int = 0  # when the primary decided it


class Writing(Struct):
    """A writer that may be at work on these blocks."""

    key: bytes
    put_seq: int
    blocks: tuple[Block, ...]
    writer: str
    active: bool = True
    claim: int = 0  # a copy's: the record that gave it this space
    sources: tuple[Block, ...] = ()  # a copy's: what it reads

    @property
    def number(self) -> int:
        """The record that handed this space out."""
        return self.claim or self.put_seq


class Oracle:
    """Checks P1 to P7 as things happen."""

    def __init__(self, clock: Clockwork, plan: Plan, keys: Keys) -> None:
        self._clock, self._plan, self._keys = clock, plan, keys
        self.truth = Truth()
        self.shown: dict[bytes, int] = {}  # the newest record about a key whose effect somebody was shown
        self.grants: list[Grant] = []
        self.writings: list[Writing] = []
        self.memory: dict[Block, tuple[bytes, int]] = {}
        self.promises: list[tuple[int, int, str]] = []  # (record, epoch, answer) since the present epoch began
        self.slots: dict[bytes, int] = {}  # the journal as it stands in the store: slot -> bytes
        self.heard_us: dict[bytes, int] = {}  # segment -> when a leader heard its owner last
        self.cold_us = -1  # when all nodes were down at once, or no leader wrote for a host's term, the last time
        self._spoke_us = -1  # when a leader last wrote
        self.acknowledged = 0
        self.reads_checked = 0

    # --- the journal, as it is written ---

    def wrote(self, op: Op, result: StoreResult) -> None:
        """A write was executed: if it is a batch, read it."""
        if not isinstance(op, Txn) or not isinstance(result, TxnResult) or not result.succeeded:
            return
        for part in op.success:
            if isinstance(part, Put) and part.key.startswith(self._keys.explicit):
                epoch = self._batch(part)
                self.slots[part.key] = len(part.value)
                if (
                    epoch == op.compare[0].operand
                ):  # else a successor attaches what a dead leader had left in the buffer
                    self._speaks()
            elif isinstance(part, Put) and part.key.startswith(self._keys.unlogged):
                self._speaks()
            elif isinstance(part, DeleteRange) and part.key.startswith(self._keys.explicit):
                if part.range_end == prefix_end(self._keys.explicit):
                    self._cut_off(slot_number(part.key) - 1)
                for slot in [slot for slot in self.slots if part.key <= slot < part.range_end]:
                    del self.slots[slot]

    def _speaks(self) -> None:
        """A leader writes. If none did for longer than a host's term, nobody knows what became of the hosts (H9)."""
        now_us = self._clock.now_us
        if 0 <= self._spoke_us < now_us - int(self._plan.index.client_ttl_ms * 1_020):
            self.cold_us = now_us
        self._spoke_us = now_us

    def _cut_off(self, tail_n: int) -> None:
        """An operator has given up what follows `tail_n`: nothing of it is promised any more."""
        log = self.truth.log[:tail_n]
        self.truth = Truth()
        for epoch, record in log:
            self.truth.apply(epoch, record)
        self.shown = {key: min(n, tail_n) for key, n in self.shown.items()}
        self.promises = [one for one in self.promises if one[0] <= tail_n]

    def _batch(self, put: Put) -> int:
        batch, truth = decode_explicit(put.value), self.truth
        tail = (truth.epochs[-1], truth.tail_n)
        if batch.first_n <= truth.tail_n and slot_number(put.key) == batch.first_n:
            if truth.epochs[batch.first_n] == batch.epoch:
                return batch.epoch  # a request that was repeated late, below the floor: the same bytes
            raise Violation("P4", f"two leaders wrote record {batch.first_n}")
        if (batch.prev_epoch, batch.prev_n) != tail or batch.first_n != truth.tail_n + 1:
            raise Violation("P4", f"batch {batch.first_n} of epoch {batch.epoch} does not follow the tail {tail}")
        if isinstance(batch.records[0], Begin):
            self._settle()
            self._check_begin(batch.records[0])
        for record in batch.records:
            truth.apply(batch.epoch, record)
        return batch.epoch

    def _check_begin(self, begin: Begin) -> None:
        """Leases go on without grace only right after a hand-over, counted from the very moment that it names."""
        last = self.truth.log[-1][1] if self.truth.log else None
        if begin.handover_ms != NEVER_MS and not (isinstance(last, Handover) and last.at_ms == begin.handover_ms):
            raise Violation("P2", f"epoch {begin.epoch} counts leases from a hand-over that is not the last record")

    def _settle(self) -> None:
        """A new epoch begins: from here on, what was answered and does not stand in the journal is lost."""
        truth = self.truth
        for n, epoch, what in self.promises:
            if n > truth.tail_n or truth.epochs[n] > epoch:
                raise Violation("P1", f"{what} was answered in epoch {epoch}, and record {n} about it is lost")
        self.promises = []

    # --- answers, as they leave a node ---

    def leaves(self, answer: Answer, epoch: int, what: str, buffered_n: int) -> None:
        """An answer leaves: what it shows must be durable, and have been decided by this epoch or an older one.

        Where no space is handed out: with a buffer, what stands in the buffer is as good (`buffered_n`); and `async`
        may be a stated number of records ahead, which a failover may cost. Everything else holds there, too.
        """
        truth, after, ha = self.truth, answer.after, self._plan.ha
        ahead = 0 if answer.hands_out_space or ha.durability != "async" else ha.async_records_max
        self.acknowledged += 1
        if truth.tail_n < after <= max(truth.tail_n + ahead, 0 if answer.hands_out_space else buffered_n):
            if not ahead:
                self._promise(answer, epoch, what)
            return
        if after > truth.tail_n:
            raise Violation("P1", f"{what} was answered while record {after} is not durable (tail {truth.tail_n})")
        if truth.epochs[after] > epoch:
            raise Violation("P1", f"{what} was answered on record {after}, which another leader wrote")
        self._promise(answer, epoch, what)

    def _promise(self, answer: Answer, epoch: int, what: str) -> None:
        n = max(answer.about, answer.after)
        if n:
            self.promises.append((n, epoch, what))

    def show(self, key: bytes, n: int) -> None:
        self.shown[key] = max(self.shown.get(key, 0), n)

    def hit(self, key: bytes, put_seq: int, shown_n: int, grant: Grant) -> None:
        """A reader is told of a version, under a lease."""
        if put_seq < shown_n:
            raise Violation("P5", f"{key!r} was read as put {put_seq} after record {shown_n} about it had been shown")
        if self.truth.visible.get(key, 0) >= put_seq or self._plan.ha.durability != "async":
            self.show(key, put_seq)
        self.grants.append(grant)
        if len(self.grants) > 200:
            self.grants = [one for one in self.grants if one.until_us > self._clock.now_us]

    def missed(self, key: bytes, after: int, asked_changed_n: int, asked_seq: int | None) -> None:
        """A reader is told that a key is not there. Right if the truth says so, or if it could be evicted."""
        truth = self.truth
        if after > truth.tail_n:
            return  # shown by a record that stands in the buffer only
        put_seq = truth.visible.get(key)
        if put_seq is None or put_seq != asked_seq or truth.changed.get(key, 0) != asked_changed_n:
            return
        held = [grant for grant in self.live() if grant.key == key and grant.put_seq == put_seq]
        if held:
            raise Violation("P2", f"{key!r} (put {put_seq}) is gone while {held[0].reader} has a lease on it")
        if self.nothing_is_evicted():
            raise Violation("P1", f"{key!r} (put {put_seq}) was acknowledged and is gone; nothing is ever evicted here")
        if truth.is_hard_pinned(put_seq):
            raise Violation("P1", f"{key!r} (put {put_seq}) is gone in spite of its hard pin")
        if truth.is_pinned(put_seq) and self._plan.soft_pins_hold:
            raise Violation("P1", f"{key!r} (put {put_seq}) is gone in spite of its soft pin")

    def nothing_is_evicted(self) -> bool:
        """Whether every miss of what was acknowledged is a loss."""
        plan = self._plan
        roomy = plan.roomy and plan.index.eviction_policy == "pressure" and not plan.changing
        return roomy and not self.truth.disturbed

    def removed(self, key: bytes, n: int, force: bool, decided_us: int) -> None:
        """A remove is acknowledged. It may have waited for the store since it was decided."""
        if not force:
            put_seq = self.truth.dropped.get(n, {}).get(key, 0)
            self._check_unleased(key, put_seq, self.truth.group_of(put_seq), n, decided_us)
        if n <= self.truth.tail_n or self._plan.ha.durability != "async":
            self.show(key, n)

    def range_removed(self, first_n: int, last_n: int) -> None:
        """A removal of everything that matches is acknowledged; what was leased had to stay."""
        for n in range(first_n, last_n + 1):
            for key, put_seq in self.truth.dropped.get(n, {}).items():
                # It may have been evicted, before its companions were read: of those nothing can be said here.
                self._check_unleased(key, put_seq, b"", n, 0)
                self.show(key, n)

    def _check_unleased(self, key: bytes, put_seq: int, group: bytes, n: int, decided_us: int) -> None:
        """What a remove without force took was not under a lease, its own or its group's.

        (What a forced remove took before is not this one's doing. And who reads a companion after it was decided has a
        lease on what is left of the group.)
        """
        truth = self.truth
        for grant in self.live():
            own = grant.key == key and grant.put_seq == put_seq
            before = truth.visible.get(grant.key) == grant.put_seq and grant.given_us < decided_us
            if own or (group and before and truth.group_of(grant.put_seq) == group):
                raise Violation(
                    "P2",
                    f"{key!r} (put {put_seq}) was removed at {n} while {grant.reader} has a lease on "
                    f"{grant.key!r} (put {grant.put_seq})",
                )

    def sent_to(self, segments: set[bytes], who: str) -> None:
        """Somebody is sent to memory: its owner must have been heard since everything was down at once (H9)."""
        for segment in segments:
            if self.heard_us.get(segment, 0) < self.cold_us:
                raise Violation("P7", f"{who} is sent to {segment!r}, whose owner nobody has heard since a restart")

    def no_space(self, key: bytes, journal_full: bool) -> None:
        """A writer is told that there is no space: never where the pool cannot fill, and all its owners are known."""
        if self.nothing_is_evicted() and self.truth.segments and not journal_full:
            raise Violation("P7", f"no space for {key!r} was said of a pool that is nearly empty")

    def task_told(self, task: bytes, asked: int | None, code: Code, status: int) -> None:
        """What is said of a task whose status was `asked` (None: unknown) when the question was put."""
        if asked is None:
            return
        if code is Code.TASK_NOT_FOUND:
            raise Violation("P1", f"task {task.hex()} was acknowledged and is unknown")
        if asked >= TaskStatus.FAILED and status != asked:
            raise Violation("P5", f"task {task.hex()} had ended ({asked}) and is told as {status}")

    def live(self) -> list[Grant]:
        now_us = self._clock.now_us
        return [grant for grant in self.grants if grant.until_us > now_us]

    def handed_out(self, writing: Writing) -> None:
        """Space is given to a writer."""
        wanted = set(writing.blocks)
        for grant in self.live():
            if wanted.intersection(grant.blocks) and (grant.put_seq != writing.put_seq or writing.claim):
                raise Violation(
                    "P2",
                    f"space of {grant.key!r} (put {grant.put_seq}), leased by {grant.reader}, "
                    f"was handed out for {writing.key!r} (put {writing.put_seq})",
                )
        self.writings = [one for one in self.writings if one.active]
        for other in self.writings:
            if other.number != writing.number and wanted.intersection(other.blocks):
                raise Violation(
                    "P3",
                    f"{writing.writer} got space for {writing.key!r} (put {writing.put_seq}) that "
                    f"{other.writer} may still be writing for {other.key!r} (put {other.put_seq})",
                )
        self.writings.append(writing)

    # --- memory ---

    def copy(self, source: Block, target: Block) -> None:
        """Bytes as they are, right or wrong: whoever reads them judges."""
        tag = self.memory.get(source)
        if tag is not None:
            self.memory[target] = tag

    def write(self, block: Block, tag: tuple[bytes, int]) -> None:
        self.memory[block] = tag

    def read(self, grant: Grant) -> None:
        """A reader looks at the bytes, within its lease."""
        self.reads_checked += 1
        for block in grant.blocks:
            tag = self.memory.get(block)
            if tag != (grant.key, grant.put_seq):
                wanted = f"{grant.key!r} (put {grant.put_seq})"
                there = f"{tag[0]!r} (put {tag[1]})" if tag is not None else "what nobody wrote"
                raise Violation("P3", f"{grant.reader} read {there} where {wanted} should be")

    def host_gone(self, endpoint: str) -> None:
        """A memory's owner died: nobody is promised anything about it any more."""
        self.memory = {block: tag for block, tag in self.memory.items() if block.endpoint != endpoint}
        for grant in self.grants:
            if any(block.endpoint == endpoint for block in grant.blocks):
                grant.until_us = 0
        for writing in self.writings:
            if any(block.endpoint == endpoint for block in (*writing.blocks, *writing.sources)):
                writing.active = False


def blocks_of(endpoint: str, address: int, size: int) -> list[Block]:
    """The blocks of memory that an extent covers."""
    return [Block(endpoint, number) for number in range(address // BLOCK, -(-(address + size) // BLOCK))]
