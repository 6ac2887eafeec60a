"""One of three APScheduler 3 processes: each run of its job pushes the fencing token and the time to a Redis list."""

from __future__ import annotations

import os
import time

import redis
from apscheduler.schedulers.blocking import BlockingScheduler

from leasehold.contrib.apscheduler import LeaseholdJobStore
from leasehold.contrib.fencing import fencing_token, scheduled_time

server = redis.Redis.from_url(os.environ["TEST_BROKER"])


def tick() -> None:
    server.rpush("ticks", f"{fencing_token()} {scheduled_time()!r} {time.time()!r}")


scheduler = BlockingScheduler(job_defaults={"misfire_grace_time": 60})
scheduler.add_jobstore(
    LeaseholdJobStore(os.environ["TEST_NAME"], store=os.environ["TEST_STORE"], ttl_s=int(os.environ["TEST_TTL"]))
)
scheduler.add_job(tick, "interval", seconds=float(os.environ["TEST_INTERVAL"]), id="tick")
scheduler.start()
