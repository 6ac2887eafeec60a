"""A running authority: the machine with a clock, an event loop and a store. One object is one term.

async with await Authority.open(SqliteStore("cache.db"), AuthoritySettings(term_ms=5_000)) as authority:
    ...                              # serve it with `CacheServer`, or use `Client(authority)` in this process
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, Self

import structlog

from leasehold.base.clock import Clock
from leasehold.base.errors import CallerError
from leasehold.cache import events as e
from leasehold.cache.authority_machine import AuthorityMachine
from leasehold.cache.errors import TokenRefused
from leasehold.cache.key_state import FOREVER_MS
from leasehold.cache.model import ABSENT, Drop, FromAuthority, FromClient, Item
from leasehold.cache.settings import AuthoritySettings
from leasehold.cache.stores.api import BackingStore
from leasehold.leases import Plan, plan
from leasehold.runtime.clock import BootClock
from leasehold.runtime.closing import AsyncClosing

log = structlog.get_logger("leasehold.cache")


class Sink(Protocol):
    """The way to one client. No promise depends on whether or when a message arrives."""

    def take(self, message: FromAuthority) -> None: ...

    def call_back(self, drop: Drop) -> None:
        """The client holds a lease on a key that is about to be written."""
        ...

    def refill(self, seq: int, item: Item) -> None:
        """The new value that the acknowledgement `seq` requested. No call waits for it."""
        ...


class LeaderLease(Protocol):
    """Returns until when this authority certainly holds the leader lease, in ms on its own clock."""

    def __call__(self) -> int: ...


def plan_for(settings: AuthoritySettings) -> Plan:
    """The lease plan for these settings: a write waits at most one lease term for a holder that died."""
    return plan(lease_ms=settings.term_ms, renew_ms=0, drift_ppm=settings.drift_ppm, retry_ms=0, round_trip_ms=1)


class Authority(AsyncClosing):
    """See the module. Create one with `Authority.open`; its term ends with `close()`, or when it is deposed."""

    def __init__(
        self,
        machine: AuthorityMachine,
        store: BackingStore,
        clock: Clock,
        right: LeaderLease | None,
    ) -> None:
        self.machine = machine
        self.deposed = asyncio.Event()
        self._store = store
        self._clock = clock
        self._leader_lease = right
        self._loop = asyncio.get_running_loop()
        self._sinks: dict[str, Sink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = FOREVER_MS
        self._drained = asyncio.Event()
        self._closed = False
        self._feed(e.Tick())

    @classmethod
    async def open(
        cls,
        store: BackingStore,
        settings: AuthoritySettings | None = None,
        *,
        clock: Clock | None = None,
        right: LeaderLease | None = None,
    ) -> Self:
        """Begin a term: fence predecessors off in the store, serve reads immediately, and writes after their leases.

        `right` returns until when the leader lease is held; without it, this is the only authority.
        """
        settings = settings or AuthoritySettings()
        clock = clock or BootClock()
        broken = plan_for(settings).broken
        if broken:
            raise CallerError(f"these lease times cannot work: {broken[0].why}")
        try:
            opened = await store.open(settings.term_ms)
        except BaseException:
            await store.close()  # the store belongs to the authority, and there will be none
            raise
        now_ms = clock.now_ms()
        machine = AuthorityMachine(
            now_ms,
            settings,
            opened.epoch,
            term_before_ms=opened.term_before_ms,
            keeps_all=store.is_memory,
            serve_until_ms=right() if right is not None else FOREVER_MS,
        )
        wait_ms = max(0, machine.term.writes_from_ms - now_ms)
        log.info("cache authority began a term", epoch=opened.epoch, writes_wait_ms=wait_ms, term_ms=settings.term_ms)
        return cls(machine, store, clock, right)

    # --- connections ---

    def attach(self, client: str, sink: Sink) -> None:
        """Send to `client` through `sink`. A newer connection of the same client replaces an older one."""
        self._sinks[client] = sink

    def detach(self, client: str, sink: Sink) -> None:
        if self._sinks.get(client) is sink:
            del self._sinks[client]
            self._feed(e.Disconnected(client))

    def receive(self, client: str, messages: list[FromClient]) -> None:
        """Handle messages from a client. Answers go to its sink, now or later."""
        self._feed(e.Received(client, messages))

    # --- stopping ---

    async def close(self, *, drain_s: float = 1.0) -> bool:
        """Stop, and have every client drop its copies. True: no lease is left, so the next start need not wait."""
        if self._closed:
            return False
        self._feed(e.Stop())
        try:
            async with asyncio.timeout(drain_s):
                await self._drained.wait()
        except TimeoutError:
            log.warning("cache authority stops with leases out: the next one waits one lease term before it writes")
        clean = self._drained.is_set()
        self._end()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if clean:
                await self._store.mark_clean()
        except Exception as error:  # the marker may be missing, which is safe, or present, which is true
            log.warning("the clean stop could not be recorded in the store: the next start waits", error=str(error))
            clean = False
        finally:
            await self._store.close()
        return clean

    def kill(self) -> None:
        """Stop immediately, like a crash: for tests, and when the leader lease was lost. The store stays open."""
        self._end()
        for task in self._tasks:
            task.cancel()

    def _end(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # --- the machine on the loop ---

    def _feed(self, event: e.Event) -> None:
        if self._closed:
            return
        now_ms = self._clock.now_ms()
        machine, sinks = self.machine, self._sinks
        if self._leader_lease is not None:
            machine.handle(now_ms, e.LeaderLease(self._leader_lease()))
        events = [event]
        for each in events:  # the list grows: a store in memory answers immediately
            for effect in machine.handle(now_ms, each):
                if type(effect) is e.Send:
                    if (sink := sinks.get(effect.client)) is not None:
                        sink.take(effect.message)
                elif type(effect) is e.CallBack:
                    for holder in effect.holders:
                        if (sink := sinks.get(holder)) is not None:
                            sink.call_back(effect.drop)
                elif type(effect) is e.Refilled:
                    for client, seq in effect.requests.items():
                        if (sink := sinks.get(client)) is not None:
                            sink.refill(seq, effect.item)
                elif (answer := self._do(effect)) is not None:
                    events.append(answer)
        self._schedule(now_ms)

    def _schedule(self, now_ms: int) -> None:
        wake_ms = self.machine.next_wake_ms()
        if wake_ms >= self._timer_ms and self._timer is not None:
            return  # an earlier timer is set, and schedules the next
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake_ms
        self._timer = self._loop.call_later(max(0, wake_ms - now_ms) / 1_000, self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_ms = None, FOREVER_MS
        self._feed(e.Tick())

    def _do(self, effect: e.Effect) -> e.Event | None:
        """Start an operation of the store. Returns its answer if the store is memory."""
        match effect:
            case e.Load(key) if self._store.is_memory:
                return e.Loaded(key, None, ABSENT)
            case e.Store(key, _, token) if self._store.is_memory:
                return e.Stored(key, token)
            case e.Load(key):
                self._spawn(self._load(key))
            case e.Store():
                self._spawn(self._keep(effect))
            case e.SettleTerm():
                self._spawn(self._settle())
            case e.RecordCleanStop():
                self._drained.set()
            case e.Deposed(reason):
                log.error("cache authority is deposed", reason=reason)
                self.deposed.set()
        return None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, key: bytes) -> None:
        try:
            kept = await self._store.load(key)
        except Exception as error:
            log.warning("the store behind the cache could not be read", key=key, error=str(error))
            self._feed(e.LoadFailed(key, str(error)))
            return
        self._feed(e.Loaded(key, None, ABSENT) if kept is None else e.Loaded(key, kept.value, kept.version))

    async def _keep(self, effect: e.Store) -> None:
        try:
            await self._store.store(effect.key, effect.value, effect.token)
        except TokenRefused:
            self._feed(e.StoreRefused(effect.key, effect.token))
        except Exception as error:
            log.warning(
                "a write to the store behind the cache has an unknown outcome", key=effect.key, error=str(error)
            )
            self._feed(e.StoreUnknown(effect.key, effect.token, str(error)))
        else:
            self._feed(e.Stored(effect.key, effect.token))

    async def _settle(self) -> None:
        try:
            await self._store.settle_term(self.machine.settings.term_ms)
        except Exception as error:  # the only effect is that the next start waits longer
            log.warning("the maximum lease term could not be lowered in the store", error=str(error))
