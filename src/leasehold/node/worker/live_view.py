"""The changing state of a running node for its streams: samples of the last hour, and the use of the pool."""

from __future__ import annotations

import asyncio
from typing import Final

from leasehold.admin.samples import INTERVAL_MS, Sample, SampleRing, Totals
from leasehold.base.measures import Histogram
from leasehold.index.survey import PoolSurvey, SegmentUse
from leasehold.node.worker.run import RunningNode
from leasehold.runtime.clock import wall_us

SURVEY_S: Final = 0.1
SURVEY_BLOCKS: Final = 200  # about 0.2 ms of the loop, ten times a second


class LiveView:
    """Takes the samples, and surveys the pool. Both are cheap enough to run always."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self._ring = SampleRing()
        self._survey = PoolSurvey()
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._sample()
        self._look()

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    @property
    def pool(self) -> tuple[SegmentUse, ...]:
        return self._survey.result

    def samples(self) -> list[Sample]:
        return self._ring.last()

    def newest(self) -> Sample | None:
        newest = self._ring.last(1)
        return newest[0] if newest else None

    def _look(self) -> None:
        self._survey.step(self._node.machine.index, SURVEY_BLOCKS)
        self._timers["survey"] = self._loop.call_later(SURVEY_S, self._look)

    def _sample(self) -> None:
        self._ring.add(self._node.clock.now_ms(), wall_us() // 1_000, self._totals())
        self._timers["sample"] = self._loop.call_later(INTERVAL_MS / 1000, self._sample)

    def _totals(self) -> Totals:
        node, index = self._node, self._node.machine.index
        durations = node.calls.durations()
        all_calls = Histogram()
        for each in durations.values():
            all_calls.merge(each)
        return Totals(
            calls={name: histogram.count for name, histogram in durations.items()},
            call_ns=all_calls,
            failures=sum(node.calls.failures().values()),
            hits=index.reads.hits,
            misses=index.reads.misses,
            store_writes=node.driver.meter.writes.total(),
            evicted=index.eviction.evicted_count,
            commit_ns=node.driver.meter.commit_ns.copy(),
            objects=index.catalog.object_count,
            used_bytes=index.space.used_bytes,
            connections=len(node.entrance.server.connections),
        )
