"""Strategies: which segments are tried first for a new object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from leasehold.index.disk_capacity import DiskCapacity
from leasehold.index.model import PutConfig, Segment
from leasehold.index.newcomers import Newcomers

_SAMPLE = 6  # segments that are compared for the best one, if there are many

Choose = Callable[[int], int]


class Strategy(Protocol):
    """Orders the segments for a new object. It never excludes one: the caller tries the others afterwards."""

    def first(self, candidates: list[Segment], size: int) -> Segment:
        """The segment to try first. There are at least two."""

    def ranked(self, candidates: list[Segment], size: int, config: PutConfig) -> Iterable[Segment]:
        """Some segments, best first."""


class RandomChoice:
    """Every segment with the same probability."""

    __slots__ = ("_choose",)

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def first(self, candidates: list[Segment], size: int) -> Segment:
        return candidates[self._choose(len(candidates))]

    def ranked(self, candidates: list[Segment], size: int, config: PutConfig) -> Iterable[Segment]:
        return ()


class Freest:
    """The best of a sample by a score: the free part of the segment, or of its owner's disk."""

    __slots__ = ("_choose", "_score")

    def __init__(self, choose: Choose, score: Callable[[Segment], float]) -> None:
        self._choose = choose
        self._score = score

    def first(self, candidates: list[Segment], size: int) -> Segment:
        return max(self._sample(candidates, 1), key=self._score)

    def ranked(self, candidates: list[Segment], size: int, config: PutConfig) -> Iterable[Segment]:
        return sorted(self._sample(candidates, config.replicas), key=self._score, reverse=True)

    def _sample(self, candidates: list[Segment], wanted: int) -> Sequence[Segment]:
        if len(candidates) <= _SAMPLE + wanted:
            return candidates
        return [candidates[self._choose(len(candidates))] for _ in range(_SAMPLE + wanted)]


class TwoChoices:
    """Of two segments drawn at random, the one with more free bytes (power of two choices).

    A segment is drawn with a probability of 2/n, so even an empty one among full ones receives at most 2/n of the
    objects; in its first minute a stricter limit holds (`Newcomers`).
    """

    __slots__ = ("_choose", "_newcomers")

    def __init__(self, choose: Choose, newcomers: Newcomers) -> None:
        self._choose = choose
        self._newcomers = newcomers

    def first(self, candidates: list[Segment], size: int) -> Segment:
        count = len(candidates)
        if count == 2:
            one, two = candidates
        else:
            place = self._choose(count)
            other = self._choose(count - 1)
            one, two = candidates[place], candidates[other + (other >= place)]
        if one.allocator.free_bytes < two.allocator.free_bytes:
            one, two = two, one
        return two if self._newcomers.holds_back(one, size, count) else one

    def ranked(self, candidates: list[Segment], size: int, config: PutConfig) -> Iterable[Segment]:
        """Two draws for each replica, then every segment that is not held back, from a random start."""
        count, choose, newcomers = len(candidates), self._choose, self._newcomers
        if count <= 2 * config.replicas:
            drawn = candidates
        else:
            drawn = [candidates[choose(count)] for _ in range(2 * config.replicas)]
        for segment in sorted(drawn, key=lambda each: each.allocator.free_bytes, reverse=True):
            if not newcomers.holds_back(segment, size, count):
                yield segment
        start = choose(count)
        for step in range(count):
            segment = candidates[(start + step) % count]
            if not newcomers.holds_back(segment, size, count):
                yield segment


class LocalFirst:
    """The writer's host, then hosts with the same label, then as `TwoChoices`."""

    __slots__ = ("_labels", "_others")

    def __init__(self, labels: Sequence[str], others: TwoChoices) -> None:
        """`labels`: HOST=LABEL each; a host may end in `*`."""
        self._labels = [(host, label) for host, _, label in (each.partition("=") for each in labels)]
        self._others = others

    def first(self, candidates: list[Segment], size: int) -> Segment:
        return self._others.first(candidates, size)

    def ranked(self, candidates: list[Segment], size: int, config: PutConfig) -> Iterable[Segment]:
        host = config.host
        if host:
            yield from _freest_first(each for each in candidates if each.spec.host_id == host)
            label = self._label_of(host)
            if label:
                yield from _freest_first(each for each in candidates if self._label_of(each.spec.host_id) == label)
        yield from self._others.ranked(candidates, size, config)

    def _label_of(self, host: str) -> str:
        for pattern, label in self._labels:
            if host == pattern or (pattern.endswith("*") and host.startswith(pattern[:-1])):
                return label
        return ""


def make_strategy(
    name: str, choose: Choose, newcomers: Newcomers, disks: DiskCapacity, labels: Sequence[str]
) -> Strategy:
    """The strategy of this name (the setting `allocation`)."""
    if name == "random":
        return RandomChoice(choose)
    if name == "free-ratio-first":
        return Freest(choose, _free_ratio)
    if name == "ssd-free-ratio-first":
        return Freest(choose, lambda segment: disks.free_ratio(segment.client))
    if name == "local-first":
        return LocalFirst(labels, TwoChoices(choose, newcomers))
    return TwoChoices(choose, newcomers)


def _free_ratio(segment: Segment) -> float:
    return segment.allocator.free_bytes / segment.allocator.size


def _freest_first(segments: Iterable[Segment]) -> list[Segment]:
    return sorted(segments, key=lambda each: each.allocator.free_bytes, reverse=True)
