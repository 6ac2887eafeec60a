"""Observes everything and reports a broken promise immediately.

The truth is the journal in the store: the oracle reads every batch as it is written, and interprets it with a model of
its own (`truth`). It compares the answers to clients with that model.
"""

from __future__ import annotations

from msgspec import Struct

from leasehold.base.codes import Code, TaskStatus
from leasehold.ha.events import StoreResult
from leasehold.ha.keys import Keys
from leasehold.index.records import NEVER_MS, Begin, DiskEvict, Handover
from leasehold.journal.batch import decode_explicit
from leasehold.journal.fenced_writer import slot_number
from leasehold.mvcc.model import DeleteRange, Op, Put, Txn, TxnResult, prefix_end
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.plan import BLOCK, Plan
from leasehold.testing.sim.truth import Truth
from leasehold.testing.sim.virtual_clock import Violation, VirtualClock


class Block(Struct, frozen=True, gc=False):
    """One block of memory, by its owner and its number."""

    endpoint: str
    number: int


class Grant(Struct):
    """A reader's lease, in true time."""

    key: bytes
    put_seq: int
    blocks: tuple[Block, ...]
    until_us: int
    reader: str
    given_us: int = 0  # when the primary granted it


class Writing(Struct):
    """A writer that may be writing these blocks."""

    key: bytes
    put_seq: int
    blocks: tuple[Block, ...]
    writer: str
    active: bool = True
    claim: int = 0  # of a copy: the record that gave it this space
    sources: tuple[Block, ...] = ()  # of a copy: the blocks that it reads

    @property
    def number(self) -> int:
        """The record that handed this space out."""
        return self.claim or self.put_seq


class Oracle:
    """Checks P1 to P7 after every event."""

    def __init__(self, clock: VirtualClock, plan: Plan, keys: Keys) -> None:
        self._clock, self._plan, self._keys = clock, plan, keys
        self.truth = Truth()
        self.shown: dict[bytes, int] = {}  # the newest record about a key whose effect a client has seen
        self.grants: list[Grant] = []
        self.writings: list[Writing] = []
        self.memory: dict[Block, tuple[bytes, int]] = {}
        self.promises: list[tuple[int, int, str]] = []  # (record, epoch, answer) since the present epoch began
        self.slots: dict[bytes, int] = {}  # the journal in the store: slot -> bytes
        self.owner_seen_us: dict[bytes, int] = {}  # segment -> last ping of its owner to a leader
        self.owners_unknown_us = -1  # the last time that all nodes were down, or no leader wrote for a host's TTL
        self._written_us = -1  # when a leader last wrote
        self.acknowledged = 0
        self.reads_checked = 0

    # --- the journal, as it is written ---

    def wrote(self, op: Op, result: StoreResult) -> None:
        """The store executed a write: if it is a batch, read it."""
        if not isinstance(op, Txn) or not isinstance(result, TxnResult) or not result.succeeded:
            return
        for part in op.success:
            if isinstance(part, Put) and part.key.startswith(self._keys.explicit):
                epoch = self._batch(part)
                self.slots[part.key] = len(part.value)
                if epoch == op.compare[0].operand:  # else a successor attaches a batch of a dead leader's buffer
                    self._leader_wrote()
            elif isinstance(part, Put) and part.key.startswith(self._keys.unlogged):
                self._leader_wrote()
            elif isinstance(part, DeleteRange) and part.key.startswith(self._keys.explicit):
                if part.range_end == prefix_end(self._keys.explicit):
                    self._cut_off(slot_number(part.key) - 1)
                for slot in [slot for slot in self.slots if part.key <= slot < part.range_end]:
                    del self.slots[slot]

    def all_nodes_down(self) -> None:
        """No node is running: storage hosts may restart unnoticed (H9)."""
        self.owners_unknown_us = self._clock.now_us

    def owner_seen(self, segment: bytes) -> None:
        """A leader received a ping or a mount from this segment's owner."""
        self.owner_seen_us[segment] = self._clock.now_us

    def _leader_wrote(self) -> None:
        """A leader wrote. If none did for longer than a host's TTL, hosts may have restarted unnoticed (H9)."""
        now_us = self._clock.now_us
        if 0 <= self._written_us < now_us - int(self._plan.index.client_ttl_ms * 1_020):
            self.owners_unknown_us = now_us
        self._written_us = now_us

    def _cut_off(self, tail_n: int) -> None:
        """An operator discarded the records after `tail_n`: they are no longer promised."""
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
                return batch.epoch  # a late repeat, below the truncation point: the same bytes
            raise Violation("P4", f"two leaders wrote record {batch.first_n}")
        if (batch.prev_epoch, batch.prev_n) != tail or batch.first_n != truth.tail_n + 1:
            raise Violation("P4", f"batch {batch.first_n} of epoch {batch.epoch} does not follow the tail {tail}")
        if isinstance(batch.records[0], Begin):
            self._settle()
            self._check_begin(batch.records[0])
        for record in batch.records:
            truth.apply(batch.epoch, record)
            if isinstance(record, DiskEvict):
                self._file_deleted(record.put_seq)
        return batch.epoch

    def _file_deleted(self, put_seq: int) -> None:
        """A disk is its owner's: nothing is promised any more to a reader that was sent only there."""
        for grant in self.grants:
            if grant.put_seq == put_seq and not grant.blocks:
                grant.until_us = 0

    def _check_begin(self, begin: Begin) -> None:
        """Leases continue without grace only directly after a hand-over, from exactly the time that it names."""
        last = self.truth.log[-1][1] if self.truth.log else None
        if begin.handover_ms != NEVER_MS and not (isinstance(last, Handover) and last.at_ms == begin.handover_ms):
            raise Violation("P2", f"epoch {begin.epoch} counts leases from a hand-over that is not the last record")

    def _settle(self) -> None:
        """A new epoch begins: records that were answered and are not in the journal are lost."""
        truth = self.truth
        for n, epoch, what in self.promises:
            if n > truth.tail_n or truth.epochs[n] > epoch:
                raise Violation("P1", f"{what} was answered in epoch {epoch}, and record {n} about it is lost")
        self.promises = []

    # --- answers, as they leave a node ---

    def leaves(self, answer: Answer, epoch: int, what: str, buffered_n: int) -> None:
        """A node sends an answer: its record must be durable, and decided by this epoch or an older one.

        If the answer hands out no space, a record in the buffer also counts (`buffered_n`), and `async` may be ahead
        by a configured number of records, which a failover may lose. All other promises hold there too.
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
        """A reader gets a version, under a lease."""
        if put_seq < shown_n:
            raise Violation("P5", f"{key!r} was read as put {put_seq} after record {shown_n} about it had been shown")
        if self.truth.visible.get(key, 0) >= put_seq or self._plan.ha.durability != "async":
            self.show(key, put_seq)
        self.grants.append(grant)
        if len(self.grants) > 200:
            self.grants = [one for one in self.grants if one.until_us > self._clock.now_us]

    def missed(
        self, key: bytes, after: int, changed_n: int, visible_seq: int | None, on_disk_n: int | None = None
    ) -> None:
        """A reader gets a miss. Correct if the key does not exist, or could be evicted.

        `changed_n` and `visible_seq` are the truth when the request was sent. `on_disk_n`: a connected owner had it on
        its disk then, and this was the last record about the disks.
        """
        truth = self.truth
        if after > truth.tail_n:
            return  # shown by a record that is only in the buffer
        put_seq = truth.visible.get(key)
        if put_seq is None or put_seq != visible_seq or truth.changed.get(key, 0) != changed_n:
            return
        # A disk is its owner's: it may delete a file that is being read.
        held = [grant for grant in self.live() if grant.key == key and grant.put_seq == put_seq and grant.blocks]
        if held:
            raise Violation("P2", f"{key!r} (put {put_seq}) is missing while {held[0].reader} has a lease on it")
        if on_disk_n is not None and on_disk_n == truth.disk_n and truth.is_on_disk(put_seq):
            raise Violation("P1", f"{key!r} (put {put_seq}) is missing, and a connected owner has it on its disk")
        if self.nothing_is_evicted():
            raise Violation("P1", f"{key!r} (put {put_seq}) was acknowledged and is missing; nothing is evicted here")
        if truth.is_hard_pinned(put_seq):
            raise Violation("P1", f"{key!r} (put {put_seq}) is missing despite its hard pin")
        if truth.is_pinned(put_seq) and self._plan.soft_pins_hold:
            raise Violation("P1", f"{key!r} (put {put_seq}) is missing despite its soft pin")

    def nothing_is_evicted(self) -> bool:
        """Whether every miss of an acknowledged object is a loss."""
        plan = self._plan
        roomy = plan.roomy and plan.index.eviction_policy == "pressure" and not plan.changing
        return roomy and not self.truth.disturbed

    def removed(self, key: bytes, n: int, force: bool, decided_us: int) -> None:
        """A remove is acknowledged. It may have waited for the store since the leader decided it."""
        if not force:
            put_seq = self.truth.dropped.get(n, {}).get(key, 0)
            self._check_unleased(key, put_seq, self.truth.group_of(put_seq), n, decided_us)
        if n <= self.truth.tail_n or self._plan.ha.durability != "async":
            self.show(key, n)

    def range_removed(self, first_n: int, last_n: int) -> None:
        """A removal by pattern is acknowledged; leased objects must have stayed."""
        for n in range(first_n, last_n + 1):
            for key, put_seq in self.truth.dropped.get(n, {}).items():
                # The object may have been evicted before its group was read: nothing is known about the group here.
                self._check_unleased(key, put_seq, b"", n, 0)
                self.show(key, n)

    def _check_unleased(self, key: bytes, put_seq: int, group: bytes, n: int, decided_us: int) -> None:
        """A remove without force must not remove an object under a lease, its own or its group's.

        (An earlier forced remove is not checked here. A reader that reads another object of the group after the
        decision has a lease on the rest of the group.)
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
        """A client is sent to memory: its owner must have sent a ping since all nodes were down (H9)."""
        for segment in segments:
            if self.owner_seen_us.get(segment, 0) < self.owners_unknown_us:
                raise Violation("P7", f"{who} is sent to {segment!r}, whose owner sent no ping since a restart")

    def no_space(self, key: bytes, journal_full: bool) -> None:
        """A writer gets NO_SPACE: wrong if the pool cannot fill up and all owners are known."""
        if self.nothing_is_evicted() and self.truth.segments and not journal_full:
            raise Violation("P7", f"{key!r} got NO_SPACE from a pool that is nearly empty")

    def task_reported(self, task: bytes, before: int | None, code: Code, status: int) -> None:
        """A client gets a task's status, which was `before` (None: unknown) when it sent the query."""
        if before is None:
            return
        if code is Code.TASK_NOT_FOUND:
            raise Violation("P1", f"task {task.hex()} was acknowledged and is unknown")
        if before >= TaskStatus.FAILED and status != before:
            raise Violation("P5", f"task {task.hex()} had finished ({before}) and is reported as {status}")

    def live(self) -> list[Grant]:
        now_us = self._clock.now_us
        return [grant for grant in self.grants if grant.until_us > now_us]

    def handed_out(self, writing: Writing) -> None:
        """A writer gets space."""
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
        """Copy the bytes unchanged, correct or not: `read` checks them."""
        tag = self.memory.get(source)
        if tag is not None:
            self.memory[target] = tag

    def write(self, block: Block, tag: tuple[bytes, int]) -> None:
        self.memory[block] = tag

    def read(self, grant: Grant) -> None:
        """A reader checks the bytes, within its lease."""
        self.reads_checked += 1
        for block in grant.blocks:
            tag = self.memory.get(block)
            if tag != (grant.key, self.truth.content_of(grant.put_seq)):
                wanted = f"{grant.key!r} (put {grant.put_seq})"
                there = f"{tag[0]!r} (put {tag[1]})" if tag is not None else "unwritten memory"
                raise Violation("P3", f"{grant.reader} read {there} where {wanted} should be")

    def read_file(self, key: bytes, put_seq: int, owner: bytes, content: tuple[tuple[bytes, int] | None, ...]) -> None:
        """A reader is sent to a file, and the journal lists it for this version: it must have its bytes."""
        if owner in self.truth.on_disk.get(put_seq, {}):
            self.reads_checked += 1
            wanted = (key, self.truth.content_of(put_seq))
            if any(tag != wanted for tag in content):
                raise Violation("P5", f"the file of {key!r} (put {put_seq}) of {owner!r} has {content}")

    def host_died(self, endpoint: str) -> None:
        """A memory's owner died: nothing is promised about it any more."""
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
