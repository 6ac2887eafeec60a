"""The tables of `bench ha`: rates, CPU, writes to etcd, keys lost, and the rows with a target."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from msgspec import Struct

from bench.rows import PER_SECOND, record

# (case, durability) -> the ratio to the C++ master's rate that is wanted
TARGETS = {
    ("put, 1 thread", "sync"): 0.6,
    ("put, 8 threads", "sync"): 1.0,
    ("put_batch 10, 1 thread", "sync"): 0.8,
    ("put_batch 100, 1 thread", "sync"): 1.2,
    ("put_batch 500, 1 thread", "sync"): 1.3,
    ("remove, 1 thread", "sync"): 0.5,
    ("batch remove 100, 1 thread", "sync"): 1.0,
}
WRITES = ("put", "upsert", "remove", "batch remove")
WRITE_TARGETS = {"buffered": 0.8, "async": 1.0}
# A durable answer may take this many commits longer than one that is not durable.
COMMITS_LONGER = 1.3


class Sample(Struct, frozen=True):
    """One measurement; costs are per item."""

    rate: float
    worker_cpu_us: float
    etcd_cpu_us: float
    writes: float
    bytes: float
    failed: int


class Kill(Struct, frozen=True):
    """The cost of one leader's death."""

    acknowledged: int
    lost: int
    silent_s: float


Samples = dict[tuple[str, str], list[Sample]]
"""(case, master) -> one sample for each round."""


def print_tables(
    cases: list[str], masters: list[str], samples: Samples, kills: dict[str, list[Kill]], fenced_ms: float
) -> None:
    """`masters[0]` is the peer."""
    _rates(cases, masters, samples)
    _costs("worker CPU, us per item", "worker CPU", cases, masters, samples, lambda each: each.worker_cpu_us)
    _costs("etcd CPU, us per item", "etcd CPU", cases, masters, samples, lambda each: each.etcd_cpu_us)
    written = [case for case in cases if not case.startswith(("exist", "get"))]
    _costs("writes to etcd per item", "etcd writes", written, masters, samples, lambda each: each.writes)
    _costs("bytes in etcd's log per item", "etcd bytes", written, masters, samples, lambda each: each.bytes)
    _kills(kills)
    print(f"\none bare fenced transaction: {fenced_ms:.2f} ms")
    record("bare fenced transaction", fenced_ms, "ms")
    _targets(cases, masters[0], samples, fenced_ms)


def _median(samples: list[Sample], figure: Callable[[Sample], float]) -> float:
    return statistics.median(figure(sample) for sample in samples)


def _ratio(ours: list[Sample], theirs: list[Sample], figure: Callable[[Sample], float]) -> float:
    """The median of the rounds' ratios: in one round both were measured within seconds."""
    ratios = [figure(mine) / figure(their) for mine, their in zip(ours, theirs, strict=True) if figure(their) > 0]
    return statistics.median(ratios) if ratios else float("nan")


def _rates(cases: list[str], masters: list[str], samples: Samples) -> None:
    print(f"{'items/s: median (lowest to highest), ratio':<28}", flush=True)
    print(f"{'':<28}{masters[0]:>24}" + "".join(f"{name:>24}{'ratio':>6}" for name in masters[1:]))
    for case in cases:
        line = f"{case:<28}"
        theirs = samples[case, masters[0]]
        for name in masters:
            found = samples[case, name]
            rates = [sample.rate for sample in found]
            line += f"{f'{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})':>24}"
            if name != masters[0]:
                line += f"{_ratio(found, theirs, lambda each: each.rate):>6.2f}"
                record(f"{case}, {name}", statistics.median(rates), PER_SECOND)
            if failed := sum(sample.failed for sample in found):
                line += f" ({failed:,} refused)"
        print(line, flush=True)


def _costs(
    title: str, row: str, cases: list[str], masters: list[str], samples: Samples, figure: Callable[[Sample], float]
) -> None:
    print(f"\n{title:<30}{masters[0]:>10}" + "".join(f"{name:>12}{'ratio':>7}" for name in masters[1:]))
    for case in cases:
        theirs = samples[case, masters[0]]
        line = f"{case:<30}{_short(_median(theirs, figure)):>10}"
        for name in masters[1:]:
            found = samples[case, name]
            line += f"{_short(_median(found, figure)):>12}{_ratio(found, theirs, figure):>7.2f}"
            record(f"{case}, {name}, {row}", _median(found, figure), _unit(row))
        print(line, flush=True)


def _unit(row: str) -> str:
    return "us" if row.endswith("CPU") else row.removeprefix("etcd ")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _kills(kills: dict[str, list[Kill]]) -> None:
    print(f"\n{'leader killed under load':<30}{'acknowledged':>13}{'lost':>8}{'s to the next answer':>28}")
    for name, found in kills.items():
        silent_s = [kill.silent_s for kill in found]
        acknowledged, lost = (sum(getattr(kill, field) for kill in found) for field in ("acknowledged", "lost"))
        span = f"{statistics.median(silent_s):.1f} ({min(silent_s):.1f}-{max(silent_s):.1f})"
        print(f"{name:<30}{acknowledged:>13,}{lost:>8,}{span:>28}", flush=True)
        if name == "sync":
            record("sync, acknowledged keys lost", lost, "keys")


def _targets(cases: list[str], peer: str, samples: Samples, fenced_ms: float) -> None:
    """The verdict of each row that has a target. For single calls a latency is enough."""
    wanted = dict(TARGETS)
    for durability, target in WRITE_TARGETS.items():
        wanted |= {(case, durability): target for case in cases if case.startswith(WRITES)}
    print(f"\n{'rate, ratio to ' + peer:<42}{'target':>7}{'found':>7}")
    for (case, name), target in wanted.items():
        ours, theirs = samples[case, name], samples[case, peer]
        found = _ratio(ours, theirs, lambda each: each.rate)
        verdict = "met" if found >= target else "NOT MET"
        if name == "sync" and case in ("put, 1 thread", "remove, 1 thread"):
            ours_ms, theirs_ms = (1e3 / _median(each, lambda sample: sample.rate) for each in (ours, theirs))
            limit_ms = theirs_ms + COMMITS_LONGER * fenced_ms
            if found < target and ours_ms <= limit_ms:
                verdict = "met by latency"
            verdict += f" ({ours_ms:.2f} ms a call; limit {theirs_ms:.2f} + {COMMITS_LONGER} x {fenced_ms:.2f} ms)"
        print(f"{f'{case}, {name}':<42}{target:>7g}{found:>7.2f}  {verdict}", flush=True)
    for case in ("put, 1 thread", "put, 8 threads"):
        found = _ratio(samples[case, "sync"], samples[case, peer], lambda each: each.worker_cpu_us)
        print(f"{f'{case}, sync, worker CPU':<42}{'<= 1':>7}{found:>7.2f}  {'met' if found <= 1 else 'NOT MET'}")
    for case in (case for case in cases if "batch" in case):
        for what, figure in (("writes", lambda each: each.writes), ("bytes", lambda each: each.bytes)):
            found = _ratio(samples[case, "sync"], samples[case, peer], figure)
            print(f"{f'{case}, sync, {what}':<42}{'<= 0.5':>7}{found:>7.2f}  {'met' if found <= 0.5 else 'NOT MET'}")
