"""APScheduler 3 on several hosts, one of which schedules: a job store around any other.

    scheduler = BackgroundScheduler()
    scheduler.add_jobstore(LeaseholdJobStore("reports", store="etcd://127.0.0.1:2379"))

It works with every scheduler class and executor. Jobs are due only while this instance leads; each run is claimed in
the store first, so no run is started twice. `fencing_token()` and `scheduled_time()` of `leasehold.contrib.
fencing` are for the running job. For APScheduler 4 see `leasehold.contrib.apscheduler4`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from leasehold.concurrency import Held
from leasehold.contrib.extras import require
from leasehold.contrib.fencing import fenced
from leasehold.contrib.singleton import DEFAULT_TTL_S, Singleton

require("apscheduler", "apscheduler", __name__)

from apscheduler.jobstores.base import BaseJobStore  # noqa: E402
from apscheduler.jobstores.memory import MemoryJobStore  # noqa: E402

STANDBY_POLL_S = 0.1


def run_fenced(token: int, at_s: float, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a job's function with its fencing token and time set."""
    with fenced(token, at_s):
        return function(*args, **kwargs)


async def run_fenced_coroutine(
    token: int, at_s: float, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
) -> Any:
    """Call a job's coroutine function with its fencing token and time set."""
    with fenced(token, at_s):
        return await function(*args, **kwargs)


class FencedJob:
    """A job for one run: as the original, but its function has the fencing token."""

    def __init__(self, job: Any, token: int, at_s: float) -> None:
        self._job = job
        self._token = token
        self._at_s = at_s

    @property
    def func(self) -> Callable[..., Any]:
        function = self._job.func
        runner = run_fenced_coroutine if inspect.iscoroutinefunction(function) else run_fenced
        return partial(runner, self._token, self._at_s, function)

    @property
    def original(self) -> Any:
        """The job in the store."""
        return self._job

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_job":  # an object that is being unpickled has no job yet
            raise AttributeError(name)
        return getattr(self._job, name)

    def __str__(self) -> str:
        return str(self._job)


class LeaseholdJobStore(BaseJobStore):
    """A job store whose jobs are due in one instance of the fleet only. `inner` keeps the jobs (default: memory)."""

    def __init__(
        self, name: str, *, store: str | None = None, ttl_s: int = DEFAULT_TTL_S, inner: BaseJobStore | None = None
    ) -> None:
        super().__init__()
        self._name, self._store, self._ttl_s = name, store, ttl_s
        self._inner = inner or MemoryJobStore()
        self._singleton: Singleton | None = None
        self._led = 0  # the token of the leadership whose ticks were loaded

    def start(self, scheduler: Any, alias: str) -> None:
        super().start(scheduler, alias)
        self._inner.start(scheduler, alias)
        self._singleton = Singleton(self._name, store=self._store, ttl_s=self._ttl_s)

    def shutdown(self) -> None:
        """Resign, so that a successor starts immediately."""
        if self._singleton is not None:
            self._singleton.close()
            self._singleton = None
        self._inner.shutdown()

    def get_due_jobs(self, now: datetime) -> list[Any]:
        """The due jobs whose run this instance could claim; none while it does not lead."""
        singleton = self._singleton
        held = singleton.held() if singleton is not None else None
        if singleton is None or held is None:
            return []
        if self._led != held.token:
            singleton.ticks.load()
            for job in self._inner.get_all_jobs():
                self._skip_claimed(singleton, job, now)
            self._led = held.token
        claims = [self._claim(singleton, held, job, now) for job in self._inner.get_due_jobs(now)]
        return [job for job in claims if job is not None]

    def _claim(self, singleton: Singleton, held: Held, job: Any, now: datetime) -> FencedJob | None:
        times = job._get_run_times(now)
        if not times:
            return None
        at_s = times[-1].timestamp()
        if not singleton.ticks.claim(held, job.id, at_s):
            self._skip_claimed(singleton, job, now)
            return None
        if singleton.held() is None:  # this process may have been frozen since the claim
            return None
        return FencedJob(job, held.token, at_s)

    def _skip_claimed(self, singleton: Singleton, job: Any, now: datetime) -> None:
        """Move a job behind the last run that the fleet has started."""
        last = singleton.ticks.last(job.id)
        if last is None or job.next_run_time is None:
            return
        previous = datetime.fromtimestamp(last.at, now.tzinfo)
        if job.next_run_time <= previous:
            following = job.trigger.get_next_fire_time(previous, now)
            if following is None:
                self._inner.remove_job(job.id)
            else:
                job._modify(next_run_time=following)
                self._inner.update_job(job)

    def get_next_run_time(self) -> datetime | None:
        """When the scheduler must look again: a standby looks for the leadership from time to time."""
        due: datetime | None = self._inner.get_next_run_time()
        if due is None or (self._singleton is not None and self._singleton.held() is not None):
            return due
        return max(due, datetime.now(due.tzinfo) + timedelta(seconds=STANDBY_POLL_S))

    def lookup_job(self, job_id: str) -> Any:
        return self._inner.lookup_job(job_id)

    def get_all_jobs(self) -> list[Any]:
        jobs: list[Any] = self._inner.get_all_jobs()
        return jobs

    def add_job(self, job: Any) -> None:
        self._inner.add_job(job)

    def update_job(self, job: Any) -> None:
        self._inner.update_job(job.original if isinstance(job, FencedJob) else job)

    def remove_job(self, job_id: str) -> None:
        self._inner.remove_job(job_id)

    def remove_all_jobs(self) -> None:
        self._inner.remove_all_jobs()
