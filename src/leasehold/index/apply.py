"""Applying records from the journal: on a standby, and in replay over a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Handlers
from leasehold.index.errors import Unappliable
from leasehold.index.log import Log
from leasehold.index.records import Begin, Record
from leasehold.index.space.space import Space

_STEP_STRETCHES = 4_000  # 1 us each
_STEP_EXTENTS = 300  # 8 us each
_SETTLED_PER_RECORD = 16  # objects of an unmounted segment, settled with every record that is applied


class Applier:
    """Applies one record after the other, by the same handlers that a primary applies its decisions with."""

    __slots__ = ("_catalog", "_clock", "_coverage", "_handlers", "_log", "_rest", "_space")

    def __init__(
        self, clock: LeaderClock, log: Log, coverage: Coverage, space: Space, catalog: Catalog, handlers: Handlers
    ) -> None:
        self._clock = clock
        self._log = log
        self._coverage = coverage
        self._space = space
        self._catalog = catalog
        self._handlers = handlers
        self._rest: Iterator[None] | None = None  # the work that the last record left, see `finish_some`

    def apply(self, n: int, record: Record) -> bool:
        """Apply record `n`, which must be the next one. `Unappliable` if it does not fit this state.

        Returns whether it left work for `finish_some`.
        """
        log, clock, kind = self._log, self._clock, type(record)
        while self._rest is not None:
            self.finish_some()
        if n != log.last_n + 1:
            raise Unappliable(f"record {n} does not follow {log.last_n}: records between them are missing")
        handler = self._handlers.get(kind)
        if handler is None:
            raise Unappliable(f"record {n} is of an unknown kind, {kind.__name__}")
        log.accept(n)
        now = record.at_ms + clock.offset
        if now > clock.latest and kind is not Begin:  # `Begin` is the first record of a new clock
            clock.see(now)
        if self._catalog.ending:
            self._catalog.settle_some(_SETTLED_PER_RECORD)
        try:
            handler(n, record)
            if kind is Begin:
                self._leave(self._space.suspecting(_STEP_STRETCHES))
        except Unappliable:
            log.reject(n)
            raise
        finally:
            if self._coverage.tables_n is not None and self._coverage.advance(n):
                self.end_replay()
        return self._rest is not None

    def finish_some(self) -> bool:
        """Do a part of the work that the last record left; returns whether there is more.

        A record can leave long work: a million free stretches become suspect, a million extents are placed. The next
        record is applied after it. `apply` finishes it in one step if the caller has not finished it before.
        """
        if self._rest is not None and next(self._rest, self) is self:
            self._rest = None
        return self._rest is not None

    def _leave(self, work: Iterator[None]) -> None:
        """Do the first part of this work after all earlier work, and leave the rest."""
        self._rest = work if self._rest is None else chain(self._rest, work)
        self.finish_some()

    def end_replay(self) -> None:
        """Replay has passed the last slice of the snapshot.

        Objects without a place are dropped only now: an object that lost its place to an owner in a later slice may
        have moved elsewhere before, by a record between the two.
        """
        for entry in self._coverage.take_placeless():
            if not entry.replica_count:
                self._catalog.drop(entry, self._log.last_n, self._clock.latest, 0)
        self._leave(self._space.placing_loaded_quarantine(self._catalog.lose_replica, _STEP_EXTENTS))
