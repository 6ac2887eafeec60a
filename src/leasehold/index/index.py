"""The master's state machine.

Two halves over one state:

- **decide** (primary): validates, chooses, emits records into the outbox, and applies them by the same code;
- **apply** (standby, replay): a function of the records, and of renewals and hints, which travel in bulk.

`now_ms` is leader time. Every command says `after`: the number that must be durable (`durable_n >= after`) before its
answer may leave. A command answers `(code, after)`, or `(code, value, after)`; the hot paths answer an `Object` whose
`changed_n` is the `after`.

The parts, each a file over the one before. What there is: `state` (numbers and time), `resting` (limbo), `objects`,
`claims` (who has which place). Records: `replay` (over a snapshot), `mounts`, `doubt`, `put_records`, `copy_records`,
`apply`. Decisions: `placement`, `eviction`, `puts`, `removes`, `lending` (segments and clients), `copying`; beside them
`reads`. At last `saving` (snapshots) and `checking`.
"""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.base.codes import Code
from leasehold.base.invariants import ensure
from leasehold.index.checking import Checking
from leasehold.index.reads import Reads
from leasehold.index.records import NEVER_MS, Begin, Cause, Handover, MaxTerm, PutRevoke, Record
from leasehold.index.state import Unappliable

__all__ = ["Code", "Index", "Unappliable"]

_HOUSEKEEPING_MS = 100


class Index(Reads, Checking):
    """The state of one master: one thread, no locks, no clock, no randomness."""

    _housekept = -_HOUSEKEEPING_MS

    # --- epochs and durability ---

    def begin(
        self,
        now_ms: int,
        epoch: int,
        *,
        handover_ms: int | None = None,
        drift_ms: int = 0,
        owners_unheard: bool = False,
    ) -> int:
        """Primary: the first record of an epoch; returns its number.

        With `handover_ms` (the leader time of the old epoch's hand-over) older ends are mapped; else all get grace.
        The maximum term never shrinks here: leases of the old length may be out (schedule 9).
        `owners_unheard`: everything was down, or nobody knows for how long: owners of memory are waited for (H9).
        """
        ensure(self.covered_n is None, "P1 an epoch begins only on a complete replay")
        ensure(epoch > self.epoch, "P4 epochs grow", epoch, self.epoch)
        max_term_ms = max(self.max_term_ms, self.settings.lease_ttl_ms)
        self._housekept = -_HOUSEKEEPING_MS
        # Whom the leader before waited for, and has not told to have heard, is waited for again.
        unheard_n = self.last_n + 1 if owners_unheard else self.unheard_n
        if handover_ms is not None:
            n = self._emit(Begin(now_ms, epoch, max_term_ms, 0, handover_ms, drift_ms, 0, unheard_n))
        else:
            shift_ms = self.latest + self.max_term_ms + 1 - self.offset
            n = self._emit(Begin(now_ms, epoch, max_term_ms, self.max_term_ms, NEVER_MS, 0, shift_ms, unheard_n))
        self.distrust_owners(unheard_n)
        self._begin_settling()
        return n

    def handover(self, now_ms: int, last_unlogged: int) -> int:
        """Primary: the last record of this epoch. Nothing may be decided after it."""
        return self._emit(Handover(now_ms, self.epoch, last_unlogged))

    def take_outbox(self) -> list[tuple[int, Record]]:
        """The records decided since the last call, in order, with their numbers."""
        taken, self.outbox = self.outbox, []
        return taken

    # --- time ---

    def work(self, now_ms: int, budget: int = 256) -> bool:
        """Primary, between requests.

        Time-outs, limbo, eviction, at most about `budget` objects. True: call again soon.
        """
        now = now_ms + self.offset
        self.latest = max(self.latest, now)
        if not 0 <= now - self._housekept < _HOUSEKEEPING_MS:
            self._housekept = now
            self._keep_house(now)
        if self._free_limbo(now) or (self.ending and self.end_some(budget)):
            return True
        if self.unsettled and self._settle_some(now, budget):
            return True
        return self._evict_some(now, budget)

    def _keep_house(self, now: int) -> None:
        self._prune_graves(now)
        self.forget_some_tenants()
        self._end_silent_clients(now)
        self._end_drained(now)
        self._end_stale_copies(now)
        self._end_stale_puts(now)
        if self.open_tasks:
            self._end_stale_tasks(now)
        ttl_ms = self.settings.lease_ttl_ms
        if self.max_term_ms > ttl_ms and now >= self.epoch_start + self.max_term_ms:
            self._emit(MaxTerm(now - self.offset, ttl_ms))  # one old term later: no longer lease can be out

    def _end_stale_puts(self, now: int) -> None:
        """Unfinished puts whose writer must have given up; the oldest is first."""
        while self.unfinished:
            entry = next(iter(self.unfinished.values()))
            if self._writer_gives_up(entry) > now:
                return
            record = PutRevoke(now - self.offset, entry.tenant, entry.key, entry.put_seq, 0, Cause.PUT_TIMEOUT)
            self._emit(record)

    # --- bulk: out of the primary ---

    def take_renewals(self, limit: int) -> tuple[list[tuple[bytes, bytes, int, int, int]], bool]:
        """([(tenant, key, put_seq, lease_end_ms, soft_pin_end_ms)], whether that is all of them), in leader time."""
        batch = self.dirty[:limit]
        del self.dirty[:limit]
        while self.slow_dirty and len(batch) < limit:
            entry = next(iter(self.slow_dirty))
            del self.slow_dirty[entry]
            batch.append(entry)
        offset = self.offset
        told = []
        for entry in batch:
            entry.dirty = False
            # What was on a segment that has ended is gone for everybody: a standby would take it for divergence.
            if entry.visible and (not self.ending or self.settle(entry)):
                soft_ms = max(0, entry.soft_pin_end - offset)
                told.append((entry.tenant, entry.key, entry.put_seq, entry.lease_end - offset, soft_ms))
        complete = not self.dirty and not self.slow_dirty
        if complete:
            self.urgent = False
        return told, complete

    def take_hints(self, limit: int) -> list[tuple[bytes, bytes, int]]:
        """[(tenant, key, put_seq)] of evictions not yet told; bounded, the oldest are dropped."""
        hints = self.hints
        told = [hints.popleft() for _ in range(min(limit, len(hints)))]
        # What fell out of the bounded queue is not counted any more once the queue is empty.
        self.hinted_bytes = self.hinted_bytes - sum(entry.size for entry in told) if hints else 0
        return [(entry.tenant, entry.key, entry.put_seq) for entry in told]

    # --- bulk: into a standby ---

    def apply_renewal(self, tenant: bytes, key: bytes, put_seq: int, lease_end_ms: int, soft_pin_end_ms: int) -> bool:
        """False: there is no such object; with the mark at the bulk's as-of that means this node has diverged."""
        entry = self.lookup(tenant, key)
        if entry is None or entry.put_seq != put_seq:
            return False
        end = lease_end_ms + self.offset
        if end > entry.lease_end:
            entry.lease_end = end
            if entry.group:
                group = self.groups.get((tenant, entry.group))
                if group is not None:
                    group.lease_end = max(self._shared_end(group), end)
        if soft_pin_end_ms:
            entry.soft_pin_end = max(entry.soft_pin_end, soft_pin_end_ms + self.offset)
        return True

    def apply_hint(self, tenant: bytes, key: bytes, put_seq: int) -> bool:
        """The primary evicted it: free its space. False: not here (any more), which is fine."""
        entry = self.lookup(tenant, key)
        if entry is None or entry.put_seq != put_seq or not entry.visible or self._busy(entry):
            return False
        self._evict(entry, hint=False)
        return True

    def observe(self, leader_ms: int) -> bool:
        """The leader's clock has reached this: limbo that is over by then is free here too. True: call again soon."""
        now = leader_ms + self.offset
        self.latest = max(self.latest, now)
        self._prune_graves(now)
        self.forget_some_tenants()
        if self.ending:
            self.end_some(self.end_step_objects)
        return self._free_limbo(now, max(self.begin_n, self.keyless_n))

    def expire_until(self, leader_ms: int) -> int:
        """Policy `expiry`, on a complete bulk batch of this epoch: everything that ended before is gone. How many."""
        before = self.evicted_count
        for _ in self.expiring(leader_ms, 1_000):
            pass
        return self.evicted_count - before

    def expiring(self, leader_ms: int, every: int) -> Iterator[None]:
        """As `expire_until`, with a pause after `every` objects; nothing else may be applied meanwhile."""
        if not self.expiry:
            return
        last = leader_ms + self.offset - 1
        self.wheel.ripen_all(last)  # once: what is put back may come into a bucket that has begun
        ripe = self.wheel.ripe
        for place in range(1, len(ripe) + 1):
            if place % every == 0:
                yield
            entry = ripe.popleft()
            if not entry.visible or (self.ending and not self.settle(entry)):
                continue
            end = self.end_of_life(entry)
            if end > last or self._busy(entry):
                self.wheel.add(entry, max(end, last + 1))
            elif entry.soft_pin_end:
                # Reads may have renewed its pin unheard, for longer than any gap's grace: only a hint ends it here.
                self.wheel.add(entry, last + 1 + self.max_term_ms)
            else:
                self._evict(entry, hint=False)

    def gap_closed(self, leader_ms: int) -> None:
        """Bulk was missed until here: nothing counts as ended before `leader_ms` + the maximum term (H3).

        Whoever starts from a snapshot or from the log alone has missed bulk too, also that of older epochs.
        """
        self.floor = max(self.floor, leader_ms + self.offset + self.max_term_ms)
        self.older_than = max(self.older_than, self.floor)
