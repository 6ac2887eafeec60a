"""Record numbers, and what an answer must wait for."""

from __future__ import annotations

from collections import deque

from leasehold.base.invariants import ensure
from leasehold.index.clock import LeaderClock
from leasehold.index.records import Begin, Record
from leasehold.index.tables import Name


class Log:
    """The records of this index: their numbers, those not yet taken by the journal, those not yet durable.

    An answer that shows a *missing* object shows the record that removed it. Each object carries the number of the
    record that changed it last; for names without an object the numbers are kept here until they are durable
    (schedule 13): exactly for single names (`removed`), coarsely for range records and unmounts (`range_n`).

    Invariants: `durable_n <= last_n`; numbers in the outbox are dense and end with `last_n`; every remembered name is
    forgotten once its record is durable.
    """

    __slots__ = (
        "_absent_order", "_clock", "_removed_order", "absent_bytes", "durable_n", "epoch", "journal_full",
        "last_n", "outbox", "range_n", "refused", "removed",
    )  # fmt: skip

    def __init__(self, clock: LeaderClock) -> None:
        self._clock = clock
        self.epoch = 0
        self.last_n = 0
        self.durable_n = 0
        self.outbox: list[tuple[int, Record]] = []
        self.journal_full = False  # primary: no new puts until the journal has room again
        self.removed: dict[Name, int] = {}
        self._removed_order: deque[tuple[int, Name]] = deque()
        self.range_n = 0
        self.absent_bytes: dict[bytes, int] = {}  # by caller: key bytes of removes of absent keys, until durable
        self._absent_order: deque[tuple[int, bytes, int]] = deque()
        self.refused: dict[str, int] = {}  # bad input, counted by reason

    # --- records decided here (primary) ---

    def append(self, record: Record) -> int:
        """Number a decision and queue it for the journal; returns its number."""
        n = self.last_n = self.last_n + 1
        self.outbox.append((n, record))
        kind, clock = type(record), self._clock
        now = record.at_ms + clock.offset
        if now > clock.latest and kind is not Begin:  # `Begin` is the first record of a new clock
            clock.see(now)
        return n

    def take_outbox(self) -> list[tuple[int, Record]]:
        """The records decided since the last call, in order, with their numbers."""
        taken, self.outbox = self.outbox, []
        return taken

    def durable(self, n: int) -> None:
        """Everything up to record `n` is durable."""
        self.durable_n = max(self.durable_n, n)
        order = self._removed_order
        while order and order[0][0] <= n:
            number, name = order.popleft()
            if self.removed.get(name) == number:
                del self.removed[name]
        absent = self._absent_order
        while absent and absent[0][0] <= n:
            _, source, size = absent.popleft()
            left = self.absent_bytes[source] - size
            if left:
                self.absent_bytes[source] = left
            else:
                del self.absent_bytes[source]

    # --- records from the journal (standby, replay) ---

    def accept(self, n: int) -> None:
        """Record `n` came from the journal, so it is durable."""
        self.last_n = n
        if n > self.durable_n:
            self.durable_n = n

    def reject(self, n: int) -> None:
        """Record `n` could not be applied. An operator may continue the chain without it."""
        self.last_n = n - 1
        self.durable_n = min(self.durable_n, n - 1)

    def begin_epoch(self, epoch: int) -> None:
        """The records from now on are of this epoch."""
        self.epoch = epoch

    def load(self, epoch: int, last_n: int) -> None:
        """Continue from a snapshot, after record `last_n`."""
        self.epoch, self.last_n = epoch, last_n

    # --- what a miss must wait for ---

    def remember_removed(self, name: Name, n: int) -> None:
        """Until `n` is durable, a miss of this name must wait for it (schedule 13)."""
        if n > self.durable_n:
            self.removed[name] = n
            self._removed_order.append((n, name))

    def removed_range(self, n: int) -> None:
        """Record `n` removed an unknown set of names: every miss shows it."""
        self.range_n = n

    def after_absent(self, tenant: bytes, key: bytes) -> int:
        """The record that the answer "this key does not exist" must wait for."""
        return max(self.removed.get((tenant, key), 0), self.range_n) if self.removed else self.range_n

    def count_absent(self, n: int, source: bytes, size: int) -> None:
        """Record `n` removed a key that was not here: counted against the caller until durable (P6)."""
        self.absent_bytes[source] = self.absent_bytes.get(source, 0) + size
        self._absent_order.append((n, source, size))

    # --- refusals ---

    def set_journal_full(self, full: bool) -> None:
        """Refuse commands that write records, or accept them again."""
        self.journal_full = full

    def refuses_records(self) -> bool:
        """Whether the journal is full: then nothing is decided that callers could repeat without end (P6)."""
        if self.journal_full:
            self.refuse("the journal is full")
        return self.journal_full

    def refuse(self, reason: str) -> None:
        """Count bad input by reason."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        ensure(self.durable_n <= self.last_n, "only decided records are durable", self.durable_n, self.last_n)
        numbers = [n for n, _ in self.outbox]
        ensure(numbers == list(range(self.last_n - len(numbers) + 1, self.last_n + 1)), "the outbox is dense", numbers)
        numbers = [n for n, _ in self._removed_order]
        ensure(set(self.removed.values()) <= set(numbers), "every remembered removal will be forgotten")
