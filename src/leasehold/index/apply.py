"""Applying records from the journal: on a standby, and in replay over a snapshot."""

from __future__ import annotations

from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Handlers
from leasehold.index.errors import Unappliable
from leasehold.index.log import Log
from leasehold.index.records import Begin, Record
from leasehold.index.space.space import Space

_SETTLED_PER_RECORD = 16  # objects of an unmounted segment, settled with every record that is applied


class Applier:
    """Applies one record after the other, by the same handlers that a primary applies its decisions with."""

    __slots__ = ("_catalog", "_clock", "_coverage", "_handlers", "_log", "_space")

    def __init__(
        self, clock: LeaderClock, log: Log, coverage: Coverage, space: Space, catalog: Catalog, handlers: Handlers
    ) -> None:
        self._clock = clock
        self._log = log
        self._coverage = coverage
        self._space = space
        self._catalog = catalog
        self._handlers = handlers

    def apply(self, n: int, record: Record) -> None:
        """Apply record `n`, which must be the next one. `Unappliable` if it does not fit this state."""
        log, clock, kind = self._log, self._clock, type(record)
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
                self._space.suspect_free_space()
        except Unappliable:
            log.reject(n)
            raise
        finally:
            if self._coverage.tables_n is not None and self._coverage.advance(n):
                self.finish_replay()

    def finish_replay(self) -> None:
        """Replay has passed the last slice of the snapshot.

        Objects without a place are dropped only now: an object that lost its place to an owner in a later slice may
        have moved elsewhere before, by a record between the two.
        """
        for entry in self._coverage.take_placeless():
            if not entry.replicas:
                self._catalog.drop(entry, self._log.last_n, self._clock.latest, 0)
        self._space.place_loaded_quarantine(self._catalog.lose_replica)
