"""The faults of a seed: of the network, the clocks, the processes and the store behind the authority."""

from __future__ import annotations

import random

from msgspec import Struct, structs


class Faults(Struct, frozen=True):
    """Everything that a seed decides besides the workload. Times are real milliseconds."""

    term_ms: int
    drift_ppm: int
    loss: float
    delay_ms: tuple[int, int]
    long_delay: float
    long_delay_ms: tuple[int, int]
    refill_delay_ms: tuple[int, int]
    pause_every_ms: int
    pause_ms: tuple[int, int]
    client_crash_every_ms: int
    authority_crash_every_ms: int
    authority_down_ms: tuple[int, int]
    failover: bool
    leader_ttl_ms: int
    store_unknown: float
    store_late_ms: tuple[int, int]
    holders_per_key_max: int
    authority_entries_max: int
    write_timeout_ms: int
    write_share: float
    modes: tuple[str, ...]


_NEVER = 10**9
IMMEDIATELY = (0, 0)


def faults_for(seed: int) -> Faults:
    """The faults of one seed. In every fifth, messages overtake each other; in every tenth, refills are late."""
    faults = _mixed(seed)
    if seed % 5 == 0:
        return _overtaking(faults)
    return _late_refills(faults) if seed % 10 == 3 else faults


def _overtaking(faults: Faults) -> Faults:
    """Many values are cached, written and refilled, so a callback often overtakes the grant it is for.

    Few messages are late: with many late ones, the callback is as late as the grant.
    """
    return structs.replace(
        _calm(faults),
        long_delay=0.1,
        long_delay_ms=(faults.term_ms // 8, faults.term_ms // 2),
        write_share=0.3,
        modes=("callback",),
    )


def _late_refills(faults: Faults) -> Faults:
    """Refills are delayed, and the next write calls no holder back but waits for the leases to end.

    So it matters from when the holder of a refill counts. Lease terms are short: two must pass in one run.
    """
    return structs.replace(
        _calm(faults),
        term_ms=300,
        drift_ppm=0,
        refill_delay_ms=(75, 150),
        write_share=0.15,
        modes=("callback", "wait"),
        write_timeout_ms=3_000,
    )


def _calm(faults: Faults) -> Faults:
    """The same without faults."""
    return structs.replace(
        faults,
        loss=0.0,
        delay_ms=(1, 3),
        long_delay=0.0,
        pause_every_ms=_NEVER,
        client_crash_every_ms=_NEVER,
        authority_crash_every_ms=_NEVER,
        failover=False,
        store_unknown=0.0,
        holders_per_key_max=100,
        authority_entries_max=25,
    )


def _mixed(seed: int) -> Faults:
    """Each seed has some faults. None has all of them, or nothing would ever be cached."""
    chance = random.Random(seed * 7919 + 17)
    term_ms = chance.choice([300, 600, 1_000])
    crashes = chance.random() < 0.5
    return Faults(
        term_ms=term_ms,
        drift_ppm=chance.choice([0, 100_000, 200_000]),
        loss=chance.choice([0.0, 0.0, 0.01, 0.05]),
        delay_ms=chance.choice([(1, 3), (1, 10), (5, 40)]),
        long_delay=chance.choice([0.0, 0.02, 0.05]),
        long_delay_ms=(term_ms // 4, 2 * term_ms),
        refill_delay_ms=IMMEDIATELY,
        pause_every_ms=chance.choice([_NEVER, 8_000, 3_000]),
        pause_ms=(term_ms // 4, 2 * term_ms),
        client_crash_every_ms=chance.choice([_NEVER, 10_000]),
        authority_crash_every_ms=chance.choice([900, 2_000]) if crashes else _NEVER,
        authority_down_ms=(5, 200),
        failover=chance.random() < 0.3,
        leader_ttl_ms=chance.choice([200, 400]),
        store_unknown=chance.choice([0.0, 0.1, 0.3]),
        store_late_ms=(100, 1_500),
        holders_per_key_max=chance.choice([2, 100, 100]),
        authority_entries_max=chance.choice([4, 25]),
        write_timeout_ms=chance.choice([50, 3_000]),
        write_share=chance.choice([0.05, 0.15, 0.3]),
        modes=chance.choice([("callback",), ("wait",), ("callback", "wait", "fail"), ("callback", "wait")]),
    )
