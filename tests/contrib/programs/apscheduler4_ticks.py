"""One of three APScheduler 4 processes: each run of its job pushes the fencing token and the time to a Redis list."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta

import redis
from apscheduler import AsyncScheduler, current_job
from apscheduler.triggers.interval import IntervalTrigger

from leasehold.contrib.apscheduler4 import LeaseholdDataStore, job_fencing_token

server = redis.Redis.from_url(os.environ["TEST_BROKER"])


def tick() -> None:
    scheduled = current_job.get().scheduled_fire_time
    assert scheduled is not None
    server.rpush("ticks", f"{job_fencing_token()} {scheduled.timestamp()!r} {time.time()!r}")


async def main() -> None:
    store = LeaseholdDataStore(
        os.environ["TEST_NAME"], store=os.environ["TEST_STORE"], ttl_s=int(os.environ["TEST_TTL"])
    )
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    async with AsyncScheduler(store) as scheduler:
        trigger = IntervalTrigger(seconds=float(os.environ["TEST_INTERVAL"]), start_time=start)
        await scheduler.add_schedule(tick, trigger, id="tick")
        await scheduler.run_until_stopped()


asyncio.run(main())
