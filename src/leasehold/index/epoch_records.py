"""Applying records about epochs, the maximum lease term and the feature level."""

from __future__ import annotations

from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Handlers
from leasehold.index.errors import Unappliable
from leasehold.index.features import LEVEL_NEWEST, Features
from leasehold.index.leases import Leases
from leasehold.index.log import Log
from leasehold.index.owners import Owners
from leasehold.index.records import NEVER_MS, Begin, FeatureLevel, Handover, MaxTerm
from leasehold.index.renewals import Renewals
from leasehold.index.space.space import Space


class EpochRecords:
    """One method for each kind of record."""

    __slots__ = ("_catalog", "_clock", "_coverage", "_features", "_leases", "_log", "_owners", "_renewals", "_space")

    def __init__(
        self,
        clock: LeaderClock,
        log: Log,
        features: Features,
        coverage: Coverage,
        space: Space,
        renewals: Renewals,
        leases: Leases,
        catalog: Catalog,
        owners: Owners,
    ) -> None:
        self._clock = clock
        self._log = log
        self._features = features
        self._coverage = coverage
        self._space = space
        self._renewals = renewals
        self._leases = leases
        self._catalog = catalog
        self._owners = owners

    def handlers(self) -> Handlers:
        return {
            Begin: self._begin,
            Handover: self._handover,
            MaxTerm: self._max_term,
            FeatureLevel: self._feature_level,
        }

    def _begin(self, n: int, record: Begin) -> None:
        if self._coverage.covers_keyless(n):
            return
        clock = self._clock
        if record.handover_ms == NEVER_MS:
            moved_ms = clock.begin_after_death(record)
            if moved_ms:  # rare, with a walk: times that are the same on every node and not lifted move along
                self._leases.move_soft_pins(self._catalog.objects(), moved_ms)
                self._leases.move_soft_pins(self._catalog.pending.values(), moved_ms)
                self._space.move_drain_ends(moved_ms)
            self._space.lift(n, clock.older_than, record.grace_ms)
        else:
            clock.begin_after_handover(record)
        now = clock.start_epoch(n, record)
        self._log.begin_epoch(record.epoch)
        self._renewals.clear()
        self._owners.begin_epoch(now, record.unproven_before_n)

    def _handover(self, n: int, record: Handover) -> None:
        """Nothing to do: the next epoch's `begin` has the consequences."""

    def _max_term(self, n: int, record: MaxTerm) -> None:
        if not self._coverage.covers_keyless(n):
            self._clock.set_max_term(record.max_term_ms)

    def _feature_level(self, n: int, record: FeatureLevel) -> None:
        if record.level > LEVEL_NEWEST:
            raise Unappliable(
                f"the cluster's feature level is {record.level}, and this release reads up to {LEVEL_NEWEST}: "
                "upgrade this node"
            )
        if not self._coverage.covers_keyless(n):
            self._features.switch(record.level, n)
