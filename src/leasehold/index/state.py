"""What every part of the index has to do with: numbers, time, what waits to be told. Each part adds what is its own.

Internal time. Lease ends of several epochs must be comparable, and an epoch can begin without a walk over a million
objects. So all times inside are on one axis: internal time = leader time + `offset`. An epoch that begins after a
hand-over goes on where the old one stopped. An epoch that begins after a death begins *beyond every end that can
have been granted before* (`older_than`), and all that is older counts as ending at `floor`, the grace. Nobody
outside sees this axis.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from leasehold.base.errors import LeaseholdError
from leasehold.base.limits import index_hints_max
from leasehold.index.model import (
    Object,
)
from leasehold.index.records import Record
from leasehold.index.settings import IndexSettings
from leasehold.index.wheel import Wheel

# Objects are in tables by the hash of their keys, so that no step over one of them takes long: snapshots and range
# records go by whole tables, and a dict grows in one go. A part of the records' meaning: never to be changed.
TABLES = 16384  # a few dozen objects each, of a million; the hot paths say `& 16383`
Tables = list[dict[bytes, Object]]
NO_OBJECTS: dict[bytes, Object] = {}  # stands for every table that nothing was put into yet. Read only: see `_table_of`
Name = tuple[bytes, bytes]


class Unappliable(LeaseholdError):
    """A record that does not fit this state: the node has diverged, or lost a record. Set it aside, say so, rebuild."""


class NotHere(Unappliable):
    """The record names an object that is not there: another node, which leads, still has what was evicted here."""


class State:
    """The common data of one index. One thread, no locks, no clock, no randomness."""

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int]) -> None:
        """`choose(n)` returns a number in 0..n-1: the only randomness, from outside."""
        self.settings = settings
        self.choose = choose
        self.lease_ttl_ms = settings.lease_ttl_ms
        self.expiry = settings.eviction_policy == "expiry"
        # numbers
        self.epoch = 0
        self.last_n = 0
        self.durable_n = 0
        self.outbox: list[tuple[int, Record]] = []
        # time
        self.offset = 0  # internal time = leader time + offset
        self.latest = 0  # the latest internal time seen
        self.max_term_ms = settings.lease_ttl_ms
        self.older_than = 0  # lease ends before this are of an older epoch (or of a gap): they count as `floor`
        self.floor = 0
        self.begin_n = 0  # what began this epoch, for its primary: whatever was started before, was under another
        self.epoch_start = 0  # heartbeats and unfinished puts count from here at the earliest
        # bounds
        self.used_bytes = 0  # of all segments
        self.journal_full = False  # as the primary: no new puts until the journal has room again
        # what an answer must wait for (schedule 13)
        self.removed: dict[Name, int] = {}
        self._removed_order: deque[tuple[int, Name]] = deque()
        self.range_n = 0
        self.absent_bytes: dict[bytes, int] = {}
        self._absent_order: deque[tuple[int, bytes, int]] = deque()
        # bulk
        self.dirty: list[Object] = []
        self.slow_dirty: dict[Object, None] = {}  # those whose every renewal needs more than the hot path does
        self.urgent = False
        self.hints: deque[Object] = deque(maxlen=index_hints_max)
        self.hinted_bytes = 0  # of what is in `hints`, at least
        # eviction
        self.wheel = Wheel()
        self.soft: deque[Object] = deque()  # soft-pinned objects whose lease has ended
        self.evict_to_bytes = -1  # evict until no more than this is used; -1: no round is on
        # counters, for people
        self.evicted_count = 0
        self.evicted_bytes = 0
        self.displaced_count = 0
        self.refused: dict[str, int] = {}

    # --- what an answer must wait for ---

    def _remember_removed(self, name: Name, n: int) -> None:
        """Until `n` is durable a miss of this name must wait for it (schedule 13)."""
        if n > self.durable_n:
            self.removed[name] = n
            self._removed_order.append((n, name))

    def durable(self, n: int) -> None:
        """Everything up to `n` is durable."""
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

    def _count_absent(self, n: int, source: bytes, size: int) -> None:
        self.absent_bytes[source] = self.absent_bytes.get(source, 0) + size
        self._absent_order.append((n, source, size))

    # --- what is refused ---

    def refuses_records(self) -> bool:
        """Whether the journal is full: then nothing is decided that callers could repeat without end (P6)."""
        if self.journal_full:
            self.refuse("the journal is full")
        return self.journal_full

    def refuse(self, reason: str) -> None:
        """Count bad input by reason."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
