"""A leader, a standby and their journal, in random schedules, judged by the ledger on true time.

An answer counts only when its `after` is durable, as on a node. A crash loses records that are not durable. Renewals
and hints travel in unlogged batches, late or never. The new leader's clock starts at zero, and it does not know how
long the old one has been dead.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.index.kit import KIB, STORAGE, T, spec
from tests.index.ledger import Claim, Ledger

from leasehold.index import Code, Index, IndexSettings, PutConfig
from leasehold.index.model import CopyJob, Object
from leasehold.index.records import Record
from leasehold.index.replies import SpaceHandedOut
from leasehold.index.snapshot_format import QuarantineSlice, Slice
from leasehold.index.space.walk import QuarantineWalk
from leasehold.index.tables import TABLES

KEYS = [b"key-%d" % number for number in range(30)]
WRITERS = [b"writer-client--%d" % number for number in range(3)]
UnloggedWriter = tuple[int, int, list[tuple[bytes, bytes, int, int, int]], list[tuple[bytes, bytes, int]]]


class Cluster:
    def __init__(self, settings: IndexSettings, seed: int, crowd: int = 0) -> None:
        """`crowd`: this many small objects are put, read and removed by force at a time, and so quarantined."""
        self.settings = settings
        self.random = Random(seed)
        self.ledger = Ledger()
        self.true_ms = 1_000
        self.epoch = 1
        self.epoch_began_ms = self.true_ms
        self.log: list[tuple[int, Record]] = []  # durable
        self.waiting: list[tuple[int, Callable[[], None]]] = []  # answers, by what must be durable first
        self.unlogged: list[UnloggedWriter] = []
        self.batch_lost = False
        self.removed: dict[bytes, int] = {}  # acknowledged removals, by number
        self.acknowledged: dict[bytes, int] = {}  # complete, acknowledged, not seen gone: put number
        self.writing: dict[bytes, tuple[bytes, int, list[Claim]]] = {}
        self.slices: list[Slice] = []
        self.walk: QuarantineWalk | None = None  # after the slices, also in steps: the quarantine
        self.quarantined: list[QuarantineSlice] = []
        self.most_quarantined = 0  # in a snapshot that was loaded
        self.crowd, self.crowds = crowd, 0
        self.failovers = self.loads = self.handovers = 0
        self.leader = self.empty()
        self.leader.begin(0, self.epoch)
        for number in (1, 2):
            assert self.leader.mounts.mount(0, STORAGE, spec(number, size=24 * KIB + 64 * 2 * crowd)).code == Code.OK
        self.standby = self.empty()
        self.commit()

    def empty(self) -> Index:
        index = Index(self.settings, Random(self.random.random()).randrange)
        index.catalog.settle_step_objects = (
            1  # so that many objects of an unmounted segment are met before they are settled
        )
        return index

    @property
    def now(self) -> int:
        return self.true_ms - self.epoch_began_ms

    def step(self) -> None:
        actions = (
            (self.put, 14), (self.end, 14), (self.get, 20), (self.remove, 5), (self.remove_range, 1), (self.upsert, 5),
            (self.copy, 3), (self.tick, 15), (self.commit, 10), (self.deliver, 8), (self.flush, 5),
            (self.lose_unlogged, 0.2), (self.slice, 12 if self.crowd else 4),
            (self.reload_standby, 4 if self.crowd else 0.5), (self.fail_over, 0.25),
            (self.hand_over, 0.15), (self.quarantine_many, 1 if self.crowd else 0),
        )  # fmt: skip
        (action,) = self.random.choices([a for a, _ in actions], [w for _, w in actions])
        action()
        self.leader.work(self.now, 8)

    # --- the journal ---

    def commit(self) -> None:
        self.log += self.leader.log.take_outbox()
        n = self.leader.log.last_n
        self.leader.log.durable(n)
        ready = [answer for after, answer in self.waiting if after <= n]
        self.waiting = [(after, answer) for after, answer in self.waiting if after > n]
        for answer in ready:
            answer()

    def answer(self, after: int, effect: Callable[[], None]) -> None:
        if after <= self.leader.log.durable_n:
            effect()
        else:
            self.waiting.append((after, effect))

    def deliver(self, everything: bool = False) -> None:
        """Send records, and then the unlogged batches that they cover, to the standby."""
        tail = len(self.log) if everything else self.random.randrange(len(self.log) + 1)
        for n, record in self.log[self.standby.log.last_n : tail]:
            self.standby.apply(n, record)
        while self.unlogged and self.unlogged[0][0] <= self.standby.log.last_n and self.standby.log.epoch == self.epoch:
            as_of, leader_ms, renewals, hints = self.unlogged.pop(0)
            if self.batch_lost:
                self.standby.gap_closed(leader_ms)
                self.batch_lost = False
            for renewal in renewals:
                known = self.standby.apply_renewal(*renewal)
                assert known or self.standby.log.last_n != as_of, f"diverged: {renewal}"
            for hint in hints:
                self.standby.apply_hint(*hint)
            self.standby.observe(leader_ms)
            self.standby.expire_until(leader_ms)

    def flush(self) -> None:
        renewals, complete = self.leader.take_renewals(1_000_000)
        assert complete
        hints = self.leader.take_hints(self.random.choice((0, 3, 1_000)))
        self.unlogged.append((self.leader.log.last_n, self.now, renewals, hints))

    def lose_unlogged(self) -> None:
        if self.unlogged:
            self.unlogged.pop(0)
            self.batch_lost = True

    # --- commands ---

    def put(self) -> None:
        key, client = self.random.choice(KEYS), self.random.choice(WRITERS)
        size = self.random.choice((64, 1000, 3000, 4000))
        config = PutConfig(replicas=self.random.choice((1, 1, 2)), soft_pin=self.random.choice((0, 0, 0, 1)),
                           hard_pin=self.random.random() < 0.03)  # fmt: skip
        self._started(key, client, self.leader.puts.start(self.now, client, T, key, size, config))

    def upsert(self) -> None:
        key, client = self.random.choice(KEYS), self.random.choice(WRITERS)
        old = self.leader.catalog.lookup(T, key)
        size = old.size if old is not None and self.random.random() < 0.6 else 2_000
        self._started(key, client, self.leader.puts.start_upsert(self.now, client, T, key, size, PutConfig()))

    def _started(self, key: bytes, client: bytes, reply: SpaceHandedOut[Object]) -> None:
        entry, after = reply.value, reply.after
        if reply.code != Code.OK or entry is None:
            return
        replicas, size, who = entry.replicas, entry.size, f"{key!r} (put {entry.put_seq}, epoch {self.epoch})"
        gives_up = self.true_ms + self.settings.put_release_ms

        def answered() -> None:
            claims = self.ledger.handed_out(self.true_ms, replicas, size, who, gives_up)
            self.writing[key] = (client, after, claims)

        self.answer(after, answered)

    def end(self) -> None:
        if not self.writing:
            return
        key = self.random.choice(list(self.writing))
        client, put_seq, claims = self.writing.pop(key)
        entry = self.leader.catalog.being_written(T, key)
        if entry is None or entry.put_seq != put_seq:
            return  # replaced meanwhile: this writer has given up
        if self.random.random() < 0.15:
            self.leader.puts.revoke(self.now, client, T, key)
            return
        reply = self.leader.puts.end(self.now, client, T, key)
        code, after = reply.code, reply.after
        if code != Code.OK:
            return

        def answered() -> None:
            for claim in claims:
                claim.until = 0
            if put_seq > self.acknowledged.get(key, 0):
                self.acknowledged[key] = put_seq

        self.answer(after, answered)

    def get(self) -> None:
        key = self.random.choice(KEYS)
        entry = self.leader.reads.get(self.now, T, key)
        if entry is None:
            self.acknowledged.pop(key, None)
            return
        until = self.true_ms + self.settings.lease_ttl_ms
        # The reader counts from its request; the answer may come later, or never.
        self.answer(entry.changed_n, lambda: self.ledger.leased(entry, until) if entry.replicas else None)

    def remove(self) -> None:
        key = self.random.choice(KEYS)
        entry = self.leader.catalog.lookup(T, key)
        if entry is not None and self.random.random() < 0.3:
            self.get()
        reply = self.leader.removes.remove(self.now, T, key, self.random.random() < 0.5)
        code, after = reply.code, reply.after
        if code in (Code.OK, Code.NOT_FOUND):
            self.acknowledged.pop(key, None)
            self.answer(after, lambda: self._removed(key, after))

    def _removed(self, key: bytes, n: int) -> None:
        self.removed[key] = max(n, self.removed.get(key, 0))

    def remove_range(self) -> None:
        before = {entry.key: entry.put_seq for entry in self.leader.catalog.objects()}
        reply = self.leader.removes.remove_all(self.now, T, self.random.random() < 0.3)
        code, after = reply.code, reply.after
        assert code == Code.OK
        gone = [key for key in before if self.leader.catalog.lookup(T, key) is None]
        absent = [key for key in KEYS if self.leader.catalog.lookup(T, key) is None]
        for key in gone:
            self.acknowledged.pop(key, None)

        def answered() -> None:
            for key in absent:
                self._removed(key, after)

        self.answer(after, answered)

    def quarantine_many(self) -> None:
        """Objects that are never read again. The leases of their readers are in the ledger as all others."""
        self.crowds += 1
        keys = [b"crowd-%d-%d" % (self.crowds, number) for number in range(self.crowd)]
        for key in keys:
            if self.leader.puts.start(self.now, WRITERS[0], T, key, 64, PutConfig()).code == Code.OK:
                self.leader.puts.end(self.now, WRITERS[0], T, key)
        self.commit()
        self.flush()
        self.deliver()
        until = self.true_ms + self.settings.lease_ttl_ms
        for number, key in enumerate(keys):
            entry = self.leader.reads.get(self.now, T, key)
            if entry is not None and number % 50 == 0:  # the ledger goes through all of its claims for every put
                self.ledger.leased(entry, until)
        for key in keys:
            self.leader.removes.remove(self.now, T, key, True)

    def copy(self) -> None:
        key, client = self.random.choice(KEYS), WRITERS[0]
        job = self.leader.catalog.copies.get((T, key))
        if job is not None:
            if self.random.random() < 0.7:
                self.leader.copies.move_end(self.now, client, T, key)
            else:
                self.leader.copies.move_revoke(self.now, client, T, key)
            return
        target = self.random.choice(("seg1", "seg2"))
        reply = self.leader.copies.move_start(self.now, client, T, key, "", target)
        code, after = reply.code, reply.after
        if code == Code.OK:
            self._copying(key, self.leader.catalog.copies[(T, key)], after)

    def _copying(self, key: bytes, job: CopyJob, after: int) -> None:
        replicas, who = job.replicas, f"copy of {key!r} ({after})"

        # A copy that is complete has no writer any more: judged when handed out, not protected further.
        def answered() -> None:
            self.ledger.handed_out(self.true_ms, replicas, job.size, who, 0)

        self.answer(after, answered)

    def tick(self) -> None:
        self.true_ms += self.random.choice((1, 10, 100, 400))
        self.leader.owners.ping(self.now, STORAGE)

    # --- snapshots ---

    def slice(self) -> None:
        """A fuzzy snapshot is taken slice by slice while the leader goes on; then the quarantine."""
        whole = self.walk is not None and self.walk.is_short(4)
        if whole or (self.slices and self.slices[0].epoch != self.epoch):
            self._forget_slices()
        for _ in range(6):
            if self.sliced < TABLES:
                tables_max = self.random.choice((1, 1_000, 4_000))
                self.slices.append(self.leader.export.tables(self.sliced, tables_max, 24 + self.crowd))
            else:
                self.walk = self.walk or QuarantineWalk(self.leader.space)
                extents_max = self.random.choice((1, 4, 4 + self.crowd // 4))
                self.quarantined.append(self.leader.export.quarantine(self.walk, extents_max))

    def _forget_slices(self) -> None:
        self.slices, self.quarantined, self.walk = [], [], None

    @property
    def sliced(self) -> int:
        return sum(one.table_count for one in self.slices)

    def reload_standby(self) -> None:
        """A new standby, from a snapshot of the leader if there is one, and the log from its lowest slice on."""
        self.deliver(everything=False)
        fresh = self.empty()
        whole = self.sliced == TABLES and self.slices[0].epoch == self.epoch
        if whole:
            keyless = self.leader.export.keyless(self.walk)
            self.commit()  # a snapshot is valid once the number at its end is durable
            fresh.load(keyless, [*self.slices, *self.quarantined])
            self.most_quarantined = max(self.most_quarantined, sum(len(one.quarantine) for one in self.quarantined))
            self._forget_slices()
            self.loads += 1
        self.standby = fresh
        self.unlogged.clear()
        self.batch_lost = True
        self.deliver(everything=True)
        self.standby.check()
        if self.log[-1][0] == self.leader.log.last_n:
            assert_follows(self.leader, self.standby)

    # --- changes of leadership ---

    def fail_over(self) -> None:
        """The leader is dead, and every record that was not durable is lost."""
        if self.random.random() < 0.5:
            self.commit()
        self.waiting.clear()
        now = self.now + self.leader.clock.offset
        over = {
            entry.key
            for entry in self.leader.catalog.objects()
            if self.leader.leases.expiry and self.leader.leases.has_expired(entry, now)
        }
        there = {entry.key: entry.put_seq for entry in self.leader.catalog.objects() if entry.key not in over}
        before = {key: n for key, n in self.acknowledged.items() if there.get(key) == n}
        self.deliver(everything=True)
        self.true_ms += self.random.choice((0, 5, 500, 3_000))
        self._promote(None)
        for key, put_seq in before.items():
            entry = self.leader.catalog.lookup(T, key)
            assert entry is not None, f"P1 lost: acknowledged {key!r}"
            assert entry.put_seq >= put_seq, f"P5 older: acknowledged {key!r}"
        self.failovers += 1

    def hand_over(self) -> None:
        """By plan: everything flushed, no grace needed."""
        self.commit()
        self.flush()
        handover_ms = self.now
        self.leader.handover(self.now, 0)
        self.commit()
        lost = self.batch_lost
        self.deliver(everything=True)
        self.true_ms += self.random.choice((0, 5, 50))
        self._promote(None if lost else handover_ms)
        self.handovers += 1

    def _promote(self, handover_ms: int | None) -> None:
        self.epoch += 1
        self.epoch_began_ms = self.true_ms
        self.leader, self.standby = self.standby, self.empty()
        self.leader.check()
        self.leader.begin(0, self.epoch, handover_ms=handover_ms, drift_ms=5)
        self.waiting.clear()
        self.unlogged.clear()
        self.batch_lost = True  # the new standby has the records, but no unlogged batch of any older epoch
        self._forget_slices()
        self.commit()
        for key, n in self.removed.items():
            entry = self.leader.catalog.lookup(T, key)
            assert entry is None or entry.put_seq > n, f"P5 back: {key!r}, removed at {n}"


def assert_follows(leader: Index, standby: Index) -> None:
    """A standby that has applied all records has all objects of the leader, at the same places."""
    for entry in [*leader.catalog.objects(), *leader.catalog.pending.values()]:
        same = standby.catalog.unfinished.get(entry.put_seq) or standby.catalog.lookup(entry.tenant, entry.key)
        assert same is not None, entry.key
        assert (same.put_seq, same.visible, same.size) == (entry.put_seq, entry.visible, entry.size)
        places = [[(r.id, r.segment.incarnation, r.offset) for r in one.replicas] for one in (entry, same)]
        assert places[0] == places[1], entry.key
        assert (same.hard_pin, same.group) == (entry.hard_pin, entry.group)
        soft_ends = [
            max(0, end) for end in (same.soft_pin_end - standby.clock.offset, entry.soft_pin_end - leader.clock.offset)
        ]
        assert soft_ends[0] == soft_ends[1]
    assert set(leader.space.segments) == set(standby.space.segments)
