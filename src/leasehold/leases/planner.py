"""The planner: the outages that a choice of lease times causes, and whether the choice can work at all.

L is the lease term, T the renewal interval, D how long the granting service is down when it restarts. The holder
counts its lease from when it sent the last renewal that was answered, so a lease is at most T old when the service
goes down. It survives the restart if the remaining time is longer:

    D + retry < L - T - margin

No process can replace a dead holder for L. If the granting service restarts meanwhile, a store that keeps expiry
times over restarts (the embedded one) makes that L + D. etcd gives every lease its full term again when its leader
changes, which makes it 2L + D + election timeout (measured on 3.5.1: L 6 s, D 2 s, expired after 15.6 s).

A lease whose grantor itself depends on a lease (`above`) must outlast the worst gap above it. With renewal at a
third of the term and a gap of A + D, D at most two thirds of A, that is 2.5 times A: the rule of thumb.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from leasehold.base.errors import InvalidArgument
from leasehold.base.units import format_duration_ms
from leasehold.leases.arithmetic import DRIFT_PPM_DEFAULT, PPM, margin_ms

Store: TypeAlias = Literal["etcd", "embedded"]
Level: TypeAlias = Literal["must", "should"]
STORES: Final[tuple[Store, ...]] = ("etcd", "embedded")
RULE_OF_THUMB: Final = 2.5
TERM_MS_MAX: Final = 365 * 86_400_000


class Law(Struct, frozen=True):
    """One law and whether it holds. A broken `must` is refused, a broken `should` is a warning."""

    name: str
    holds: bool
    level: Level
    why: str


class Plan(Struct, frozen=True):
    """The consequences of the numbers; fields ending in `_s` are seconds."""

    outage_holder_death_s: float
    outage_with_restart_s: float
    lease_min_s: float
    stop_before_s: float
    dependent_lease_min_s: float
    laws: tuple[Law, ...]
    store: Store
    lease_s: float
    renew_s: float
    restart_s: float
    gap_above_s: float | None = None
    dependent_rule_of_thumb_s: float | None = None
    outage_rule_of_thumb_s: float | None = None

    @property
    def broken(self) -> tuple[Law, ...]:
        """Laws that must hold: if one is broken, refuse to start."""
        return tuple(law for law in self.laws if not law.holds and law.level == "must")

    @property
    def risky(self) -> tuple[Law, ...]:
        """Laws that should hold: if one is broken, warn the operator."""
        return tuple(law for law in self.laws if not law.holds and law.level == "should")


class _Numbers(Struct, frozen=True):
    """The given numbers, in milliseconds, and the values derived from them."""

    lease: int
    renew: int
    restart: int
    above: int | None
    restart_above: int
    drift_ppm: int
    round_trip: int
    retry: int
    election: int
    store: Store

    @property
    def margin(self) -> int:
        return margin_ms(self.lease, self.drift_ppm) + self.round_trip

    @property
    def left_after_renewal(self) -> int:
        """The remaining lease of a holder whose grantor goes down at the worst moment."""
        return self.lease - self.renew - self.margin

    def worst_gap(self, lease: int, restart: int) -> int:
        """How long a lease's place can stay empty when its holder dies and its grantor restarts once."""
        if self.store == "etcd":
            return 2 * lease + restart + self.election
        return lease + restart

    def lease_for(self, gap: int, renew: int) -> int:
        """The smallest term that outlasts `gap` when renewed every `renew`."""
        needed = gap + self.retry + renew + self.round_trip + 2
        return -(-needed * PPM // (PPM - self.drift_ppm))


def plan(
    *,
    lease_ms: int,
    renew_ms: int | None = None,
    restart_ms: int = 0,
    above_ms: int | None = None,
    restart_above_ms: int | None = None,
    store: Store = "embedded",
    drift_ppm: int = DRIFT_PPM_DEFAULT,
    round_trip_ms: int = 10,
    retry_ms: int = 100,
    election_timeout_ms: int = 1_000,
) -> Plan:
    """Calculate the outages that these lease times allow, and check the laws.

    `renew_ms` defaults to a third of the lease. `restart_above_ms`, the restart time of the service that grants the
    lease above, defaults to two thirds of that lease, as the rule of thumb assumes.
    """
    numbers = _Numbers(
        lease=_bounded("lease", lease_ms, low_ms=1),
        renew=_bounded("renew", lease_ms // 3 if renew_ms is None else renew_ms),
        restart=_bounded("restart", restart_ms),
        above=None if above_ms is None else _bounded("above", above_ms, low_ms=1),
        restart_above=_bounded("restart_above", _restart_above(above_ms, restart_above_ms)),
        drift_ppm=_drift(drift_ppm),
        round_trip=_bounded("round_trip", round_trip_ms),
        retry=_bounded("retry", retry_ms),
        election=_bounded("election_timeout", election_timeout_ms),
        store=_store(store),
    )
    gap_above = None if numbers.above is None else numbers.worst_gap(numbers.above, numbers.restart_above)
    thumb = None if numbers.above is None else RULE_OF_THUMB * numbers.above
    return Plan(
        outage_holder_death_s=_s(numbers.lease),
        outage_with_restart_s=_s(numbers.worst_gap(numbers.lease, numbers.restart)),
        lease_min_s=_s(numbers.lease_for(numbers.restart, numbers.renew)),
        stop_before_s=_s(max(0, numbers.lease - margin_ms(numbers.lease, numbers.drift_ppm))),
        dependent_lease_min_s=_s(_dependent_lease_min(numbers, gap_above)),
        laws=tuple(_laws(numbers, gap_above)),
        store=numbers.store,
        lease_s=_s(numbers.lease),
        renew_s=_s(numbers.renew),
        restart_s=_s(numbers.restart),
        gap_above_s=None if gap_above is None else _s(gap_above),
        dependent_rule_of_thumb_s=None if thumb is None else thumb / 1_000,
        outage_rule_of_thumb_s=None if thumb is None or numbers.above is None else (thumb + numbers.above) / 1_000,
    )


def _dependent_lease_min(numbers: _Numbers, gap_above: int | None) -> int:
    """With a lease above: the smallest term for *this* lease. Without: for one that would depend on this one."""
    if gap_above is not None:
        return numbers.lease_for(gap_above, numbers.renew)
    gap = numbers.worst_gap(numbers.lease, numbers.restart)
    return -(-3 * numbers.lease_for(gap, 0) // 2)  # renewed at a third of itself, so two thirds must outlast the gap


def _laws(numbers: _Numbers, gap_above: int | None) -> list[Law]:
    lease, renew, left = numbers.lease, numbers.renew, numbers.left_after_renewal
    laws = [
        _law(
            "renewed in time",
            renew + numbers.margin < lease,
            "must",
            f"the interval of renewal {_t(renew)} plus margin {_t(numbers.margin)} must be less than {_t(lease)}",
        ),
        _law(
            "survives a restart",
            numbers.restart + numbers.retry < left,
            "must",
            f"D + retry = {_t(numbers.restart + numbers.retry)} must be less than "
            f"L - T - margin = {_t(left)}, or every restart of the granting service costs the holder its lease",
            f"raise the lease to {_t(numbers.lease_for(numbers.restart, renew))} or renew more often",
        ),
        _law(
            "one renewal may be lost",
            2 * renew + numbers.margin < lease,
            "should",
            f"twice the renewal interval, {_t(2 * renew)}, should fit into the lease {_t(lease)}: "
            "otherwise one lost renewal ends it",
        ),
        _law(
            "margin is small",
            2 * numbers.margin < lease,
            "should",
            f"drift and round trip take {_t(numbers.margin)} of {_t(lease)}: it should be less than half",
        ),
    ]
    if numbers.store == "etcd":
        laws.append(
            _law(
                "longer than an election",
                lease > numbers.election,
                "should",
                f"the lease {_t(lease)} should be longer than etcd's election timeout {_t(numbers.election)}: "
                "nothing is renewed meanwhile",
            )
        )
    if gap_above is not None:
        laws.extend(_stacking_laws(numbers, gap_above))
    return laws


def _stacking_laws(numbers: _Numbers, gap_above: int) -> list[Law]:
    needed = numbers.lease_for(gap_above, numbers.renew)
    return [
        _law(
            "outlasts the gap above",
            gap_above + numbers.retry < numbers.left_after_renewal,
            "must",
            f"the service above can be down for {_t(gap_above)}; L - T - margin = {_t(numbers.left_after_renewal)} "
            f"must be more: at least {_t(needed)} of lease",
        ),
        _law(
            "not stacked",
            False,
            "should",
            f"a lease upon a lease adds up their outages: {_t(numbers.lease + gap_above)} at worst; "
            "avoid stacking, take the lease where the lower one is granted",
        ),
    ]


def _law(name: str, holds: bool, level: Level, why: str, advice: str = "") -> Law:
    """`advice` is appended only if the law is broken."""
    return Law(name, holds, level, f"{why}; {advice}" if advice and not holds else why)


def _restart_above(above_ms: int | None, restart_above_ms: int | None) -> int:
    if restart_above_ms is not None:
        if above_ms is None:
            raise InvalidArgument("restart_above needs above: give the term of the lease above, too")
        return restart_above_ms
    return 0 if above_ms is None else 2 * above_ms // 3


def _bounded(name: str, value_ms: int, low_ms: int = 0) -> int:
    if not low_ms <= value_ms <= TERM_MS_MAX:
        raise InvalidArgument(f"{name} = {value_ms} ms makes no sense: it takes {format_duration_ms(low_ms)} to 365d")
    return value_ms


def _drift(drift_ppm: int) -> int:
    if not 0 <= drift_ppm < PPM // 2:
        raise InvalidArgument(f"drift of {drift_ppm} ppm makes no sense: it takes 0 to {PPM // 2 - 1}")
    return drift_ppm


def _store(store: Store) -> Store:
    if store not in STORES:
        raise InvalidArgument(f"unknown store {store!r}: choose one of {', '.join(STORES)}")
    return store


def _s(value_ms: int) -> float:
    return value_ms / 1_000


def _t(value_ms: int) -> str:
    return format_duration_ms(value_ms)
