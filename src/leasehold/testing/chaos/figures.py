"""Figures of a finished run: times to the next good answer, failovers, latencies by second. Pure."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from leasehold.testing.chaos.history import Call, FaultLine
from leasehold.testing.chaos.plan import KINDS, Group
from leasehold.testing.chaos.roles import RoleSample


class Recovery(Struct, frozen=True):
    """How clients fared after one fault. Times are from its beginning to the next good answer to a later call."""

    fault: FaultLine
    any_ms: float  # of any client
    clients_ms: tuple[float, ...]  # of each client
    leader_changed: bool


class KindFigures(Struct, frozen=True):
    """All faults of one kind."""

    kind: str
    count: int
    leader_changes: int
    any_median_ms: float
    any_worst_ms: float
    client_median_ms: float
    client_worst_ms: float


class Second(Struct, frozen=True):
    """The calls that returned in one second."""

    good: int
    failed: int
    median_ms: float
    p99_ms: float


class Answers:
    """The good answers to one client, or to all of them, by the time of the call."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = sorted((call for call in calls if call.good), key=lambda call: call.called_ns)
        self._called = [call.called_ns for call in self._calls]

    def next_ms(self, since_ns: int) -> float | None:
        """The time from then to the first good answer to a call that was sent later; None if there is none."""
        best_ns: int | None = None
        for call in self._calls[bisect_left(self._called, since_ns) :]:
            if best_ns is not None and call.called_ns > best_ns:
                break
            best_ns = call.returned_ns if best_ns is None else min(best_ns, call.returned_ns)
        return None if best_ns is None else (best_ns - since_ns) / 1e6


def recoveries(calls: Sequence[Call], faults: Sequence[FaultLine], roles: Sequence[RoleSample]) -> list[Recovery]:
    """One for each fault after which there were calls."""
    by_client: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_client[call.client].append(call)
    by_client.pop("final", None)
    every = Answers([call for mine in by_client.values() for call in mine])
    each = [Answers(mine) for mine in by_client.values()]
    leading = [(sample.at_ns, sample.epoch) for sample in roles if sample.role == "primary"]
    found = []
    for fault in faults:
        any_ms = every.next_ms(fault.began_ns)
        if any_ms is not None:
            clients = tuple(ms for answers in each if (ms := answers.next_ms(fault.began_ns)) is not None)
            found.append(Recovery(fault, any_ms, clients, _leader_changed(fault, leading)))
    return found


def _leader_changed(fault: FaultLine, leading: Sequence[tuple[int, int]]) -> bool:
    before = [epoch for at_ns, epoch in leading if at_ns < fault.began_ns]
    after = [epoch for at_ns, epoch in leading if fault.began_ns <= at_ns <= fault.settled_ns + 1_000_000_000]
    return bool(before and after) and max(after) > max(before)


def by_kind(found: Sequence[Recovery]) -> list[KindFigures]:
    """Median and worst times of each kind, in the order of the plan."""
    groups: dict[str, list[Recovery]] = defaultdict(list)
    for one in found:
        groups[one.fault.kind].append(one)
    return [
        KindFigures(
            name,
            len(groups[name]),
            sum(one.leader_changed for one in groups[name]),
            statistics.median(one.any_ms for one in groups[name]),
            max(one.any_ms for one in groups[name]),
            statistics.median(ms for one in groups[name] for ms in one.clients_ms),
            max(ms for one in groups[name] for ms in one.clients_ms),
        )
        for name in KINDS
        if groups[name]
    ]


def count_by_group(faults: Sequence[FaultLine]) -> dict[Group, int]:
    """How many faults of each group happened; a killed etcd counts as a kill and as a fault of etcd."""
    counts = dict.fromkeys(Group, 0)
    for fault in faults:
        for group in (KINDS[fault.kind].group, *KINDS[fault.kind].counts_as):
            counts[group] += 1
    return counts


def seconds(calls: Sequence[Call], began_ns: int, ended_ns: int) -> list[Second]:
    """Throughput and latency of each second of the run."""
    length = int((ended_ns - began_ns) / 1e9) + 1
    good: list[list[float]] = [[] for _ in range(length)]
    failed = [0] * length
    for call in calls:
        at = int((call.returned_ns - began_ns) / 1e9)
        if 0 <= at < length:
            if call.good:
                good[at].append(call.took_ms)
            else:
                failed[at] += 1
    return [
        Second(len(times), bad, statistics.median(times) if times else 0.0, _p99(times))
        for times, bad in zip(good, failed, strict=True)
    ]


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)] if times else 0.0
