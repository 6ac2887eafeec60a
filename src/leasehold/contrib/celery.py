"""Celery Beat on several hosts, one of which schedules: `celery beat --scheduler leasehold.contrib.celery:Scheduler`.

Settings of the Celery app (`app.conf`):

    leasehold_store = "etcd://127.0.0.1:2379"     default: the variable LEASEHOLD_COORD
    leasehold_name = "celery-beat"                one name for each fleet
    leasehold_ttl = 10                            a successor starts within this time after a crash

When an entry last ran is kept in the store, so a successor continues from there. A tick is claimed in the store before
its task is sent, in a transaction that checks the leadership: no tick is sent twice. `task_fencing_token(self)` gives a
bound task the fencing token of the leader that sent it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from leasehold.base.errors import LeaseholdError, NotHeld
from leasehold.concurrency import Held
from leasehold.contrib.extras import require
from leasehold.contrib.singleton import DEFAULT_TTL_S, Singleton
from leasehold.runtime.log import get_logger

require("celery", "celery", __name__)

from celery import beat  # noqa: E402

log = get_logger(__name__)
HEADER = "leasehold_fencing_token"
TIME_HEADER = "leasehold_scheduled_time"  # of the tick, in seconds since 1970: no other message has it
STANDBY_WAIT_S = 0.5  # Beat must look at its shutdown flag from time to time


def task_fencing_token(task: Any) -> int:
    """The fencing token with which a bound task was sent; `NotHeld` if our scheduler did not send it."""
    request = task.request
    token = getattr(request, HEADER, None) or (getattr(request, "headers", None) or {}).get(HEADER)
    if token is None:
        raise NotHeld("no fencing token: this task was not sent by leasehold.contrib.celery:Scheduler")
    return int(token)


class Scheduler(beat.Scheduler):
    """Beat's scheduler, active only while this instance leads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._singleton: Singleton | None = None
        self._led: Held | None = None
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due if this instance leads; else wait a moment for the leadership."""
        held = self._lead()
        if held is None:
            return 0.0
        try:
            if self._led is None or self._led.token != held.token:
                self._take_over(held)
        except LeaseholdError as error:
            log.warning("The last ticks could not be read; the scheduler tries again.", error=str(error))
            return STANDBY_WAIT_S
        interval: float = super().tick(*args, **kwargs)
        return interval

    def _lead(self) -> Held | None:
        if self._singleton is None:
            conf = self.app.conf
            self._singleton = Singleton(
                conf.get("leasehold_name", "celery-beat"),
                store=conf.get("leasehold_store"),
                ttl_s=conf.get("leasehold_ttl", DEFAULT_TTL_S),
            )
        return self._singleton.wait(timeout_s=STANDBY_WAIT_S)

    def _take_over(self, held: Held) -> None:
        """Continue where the last leader stopped."""
        assert self._singleton is not None  # `_lead` has opened it
        last = self._singleton.ticks.load()
        for name, entry in self.schedule.items():
            if name in last:
                # Entries are immutable in spirit: Beat makes a new one for each run.
                entry.last_run_at = datetime.fromtimestamp(last[name].at, UTC).astimezone(self.app.timezone)
        self._heap = None
        self._led = held

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Claim the tick, then send the task with the fencing token."""
        held, singleton = self._led, self._singleton
        if held is None or singleton is None:
            return
        # `reserve` has put the entry of the next run, with the time of this one, into the schedule.
        at = self.schedule[entry.name].last_run_at.timestamp()
        if not singleton.ticks.claim(held, entry.name, at):
            log.warning("A tick was not sent: this instance does not lead any more.", task=entry.name)
            self._led = None
            return
        try:
            held.check()  # this process may have been frozen since the claim
        except NotHeld:
            log.warning("A claimed tick was not sent: the leadership was lost.", task=entry.name)
            self._led = None
            return
        fenced = self.Entry(**dict(entry))
        headers = {**entry.options.get("headers", {}), HEADER: held.token, TIME_HEADER: at}
        fenced.options = {**entry.options, "headers": headers}
        super().apply_entry(fenced, producer=producer)

    def close(self) -> None:
        """Resign, so that a successor starts immediately."""
        super().close()
        if self._singleton is not None:
            self._singleton.close()
            self._singleton = None
            self._led = None

    @property
    def info(self) -> str:
        return f"    . leasehold -> {self.app.conf.get('leasehold_name', 'celery-beat')}"
