"""APScheduler 4 on several hosts, one of which schedules: a data store in memory.

    async with AsyncScheduler(LeaseholdDataStore("reports", store="etcd://127.0.0.1:2379")) as scheduler: ...

Schedules are due only while this instance leads; each is claimed in the store first, so no run is started twice. Give
interval triggers a fixed `start_time`, the same in all instances: otherwise each instance has its own phase.
`job_fencing_token()` gives the running job its token. Tested with 4.0.0a6; its interface may still change.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from leasehold.base.errors import NotHeld
from leasehold.concurrency import Held
from leasehold.contrib.extras import require
from leasehold.contrib.singleton import DEFAULT_TTL_S, Singleton

require("apscheduler", "apscheduler", __name__)

from apscheduler import current_job  # noqa: E402
from apscheduler.datastores.memory import MemoryDataStore  # noqa: E402

STANDBY_POLL_S = 0.1
TOKEN = "leasehold_fencing_token"


def job_fencing_token() -> int:
    """The fencing token of the running job; `NotHeld` if our data store did not schedule it."""
    token = current_job.get().metadata.get(TOKEN)
    if token is None:
        raise NotHeld("no fencing token: this job was not scheduled through LeaseholdDataStore")
    return int(token)


class LeaseholdDataStore(MemoryDataStore):
    """A data store whose schedules are due in one instance of the fleet only."""

    def __init__(self, name: str, *, store: str | None = None, ttl_s: int = DEFAULT_TTL_S) -> None:
        super().__init__()
        self._fleet = name, store, ttl_s
        self._singleton: Singleton | None = None
        self._led = 0  # the token of the leadership whose ticks were loaded

    async def start(self, exit_stack: AsyncExitStack, event_broker: Any, logger: Any) -> None:
        await super().start(exit_stack, event_broker, logger)
        name, store, ttl_s = self._fleet
        self._singleton = singleton = await asyncio.to_thread(Singleton, name, store=store, ttl_s=ttl_s)

        async def resign() -> None:
            await asyncio.to_thread(singleton.close)

        exit_stack.push_async_callback(resign)

    async def acquire_schedules(self, scheduler_id: str, lease_duration: timedelta, limit: int) -> list[Any]:
        """The due schedules whose run this instance could claim; none while it does not lead."""
        singleton = self._singleton
        held = singleton.held() if singleton is not None else None
        if singleton is None or held is None:
            return []
        if self._led != held.token:
            await asyncio.to_thread(singleton.ticks.load)
            self._led = held.token
        claimed = []
        for schedule in await super().acquire_schedules(scheduler_id, lease_duration, limit):
            await self._skip_claimed(singleton, schedule)
            if await self._claim(singleton, held, schedule):
                schedule.metadata[TOKEN] = held.token
                claimed.append(schedule)
            else:
                schedule.acquired_by = schedule.acquired_until = None
        return claimed

    async def _claim(self, singleton: Singleton, held: Held, schedule: Any) -> bool:
        """Claim all runs up to now: the scheduler starts them together."""
        now = datetime.now(UTC)
        if schedule.next_fire_time is None or schedule.next_fire_time > now:
            return False
        at = now.timestamp()
        return await asyncio.to_thread(singleton.ticks.claim, held, schedule.id, at) and singleton.held() is not None

    async def _skip_claimed(self, singleton: Singleton, schedule: Any) -> None:
        """Move a schedule behind the last run that the fleet has started."""
        last = singleton.ticks.last(schedule.id)
        if last is None:
            return
        previous, following = datetime.fromtimestamp(last.at, UTC), schedule.next_fire_time
        while following is not None and following <= previous:
            following = schedule.trigger.next()
        if following != schedule.next_fire_time:
            index = self._find_schedule_index(schedule)
            del self._schedules[index]
            schedule.next_fire_time = following
            self._schedules.append(schedule)
            self._schedules.sort()

    async def get_next_schedule_run_time(self) -> datetime | None:
        """When the scheduler must look again: a standby looks for the leadership from time to time."""
        due: datetime | None = await super().get_next_schedule_run_time()
        if due is None or (self._singleton is not None and self._singleton.held() is not None):
            return due
        return max(due, datetime.now(UTC) + timedelta(seconds=STANDBY_POLL_S))
