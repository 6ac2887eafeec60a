"""A caching client: values in its own memory, never stale.

async with Client("127.0.0.1:7400") as cache:
    value = await cache.get(b"limits")          # from memory while its lease is valid
    await cache.put(b"limits", b"100")          # returns once no client can read the old value any more
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from leasehold.base.errors import CallerError, InvalidArgument, Unavailable
from leasehold.cache import client_events as c
from leasehold.cache.authority import Authority
from leasehold.cache.checks import objection_to_key, objection_to_prefix, objection_to_write
from leasehold.cache.client_machine import ClientMachine
from leasehold.cache.connector import Connector, now_ms
from leasehold.cache.errors import NotServing, error_of
from leasehold.cache.key_state import FOREVER_MS
from leasehold.cache.model import ABSENT, Version, Write
from leasehold.cache.pending_calls import PendingCalls, Value
from leasehold.cache.settings import ClientSettings
from leasehold.cache.subscription import Subscription
from leasehold.runtime.closing import AsyncClosing
from leasehold.runtime.tls import Tls

_NS_PER_MS: Final = 1_000_000
_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_clock_ns = time.clock_gettime_ns
_BOOTTIME: Final = time.CLOCK_BOOTTIME


class Statistics(Struct, frozen=True):
    hits: int
    misses: int
    callbacks: int
    refills: int
    entries: int
    bytes: int
    dropped_for_space: int


class Client(AsyncClosing):
    """See the module. `where` is an address, several of them (failover), or an `Authority` in this process."""

    def __init__(
        self,
        where: str | Sequence[str] | Authority,
        settings: ClientSettings | None = None,
        *,
        tls: Tls | None = None,
    ) -> None:
        self._tls = tls
        self.settings = settings or ClientSettings()
        self._where = where
        self._reset()
        _clients.add(self)

    def _reset(self) -> None:
        """Start with an empty cache, nothing in flight, and a new identity."""
        self.identity = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
        self.machine = ClientMachine(self.settings)
        self._entries = self.machine.entries
        self._find = self._entries.find
        self._touch = self._entries.touch
        self._connector = Connector(self._where, self.identity, self._feed, self._tls)
        self._transmit = self._connector.send
        self._calls = PendingCalls()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = FOREVER_MS
        self._subscriptions: list[Subscription] = []

    # --- reading ---

    async def get(self, key: bytes) -> bytes | None:
        """The value, or None if the key is absent: from memory while the lease is valid, else from the authority."""
        entry = self._find(key)
        if entry is not None and (now_ns := _clock_ns(_BOOTTIME)) < entry.deadline_ns:
            entry.hits += 1
            if now_ns >= entry.touch_ns:
                entry.touch_ns = now_ns + self._entries.touch_every_ns
                self._touch(key)
            return entry.value
        return (await self._read((key,)))[key].value

    def get_local(self, key: bytes) -> Value | None:
        """The value in memory under a valid lease, else None. Never waits."""
        entry = self._find(key)
        if entry is not None and _clock_ns(_BOOTTIME) < entry.deadline_ns:
            entry.hits += 1  # no touch: other threads may call this, and the loop may drop the key meanwhile
            return Value(entry.value, entry.version)
        return None

    async def get_versioned(self, key: bytes) -> Value:
        """The value and its version, for a later compare-and-set."""
        return self.get_local(key) or (await self._read((key,)))[key]

    async def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """Several values; the missing ones are read in one request. Together they are not one snapshot."""
        wanted = tuple(dict.fromkeys(keys))
        found = await self._read(wanted) if wanted else {}
        return {key: found[key].value for key in wanted}

    # --- writing ---

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        expect: Version | None = None,
        mode: str | None = None,
        timeout_s: float | None = None,
    ) -> Version:
        """Write, and return once it has taken effect: no client can read the old value any more.

        With `expect`, raise `Conflict` unless the key has that version (`ABSENT`: unless it is absent).
        """
        if value is None:
            raise InvalidArgument("a value is bytes, not None: to delete a key, call `delete`")
        return await self._write(key, value, expect, mode, timeout_s)

    async def delete(
        self, key: bytes, *, expect: Version | None = None, mode: str | None = None, timeout_s: float | None = None
    ) -> Version:
        """Delete, under the same rules as `put`."""
        return await self._write(key, None, expect, mode, timeout_s)

    async def _write(
        self, key: bytes, value: bytes | None, expect: Version | None, mode: str | None, timeout_s: float | None
    ) -> Version:
        mode = mode or self.settings.mode
        if timeout_s is not None and not math.isfinite(timeout_s):
            raise InvalidArgument(f"timeout_s must be finite, not {timeout_s}")
        timeout_ms = self.settings.timeout_ms if timeout_s is None else round(timeout_s * 1_000)
        objection = objection_to_write(Write(0, key, value, mode, expect, timeout_ms))
        if objection is not None:
            raise InvalidArgument(objection)
        deadline_ms = now_ms() + timeout_ms

        def put(call: int) -> c.Put:
            return c.Put(key, value, call, mode, max(1, deadline_ms - now_ms()), expect)

        version: Version = await self._call(deadline_ms, put)
        return version

    # --- subscriptions ---

    def subscribe(self, prefix: bytes) -> Subscription:
        """`async with client.subscribe(b"conf/") as changes: async for change in changes: ...`

        A change is a notification without the value: read the key. `missed`: there may have been more changes.
        """
        return Subscription(self, prefix)

    async def follow(self, subscription: Subscription) -> None:
        """For `Subscription`: start receiving changes under its prefix."""
        prefix = subscription.prefix
        objection = objection_to_prefix(prefix)
        if objection is not None:
            raise InvalidArgument(objection)
        first = not self._follows(prefix)
        self._subscriptions.append(subscription)
        if not first:
            return
        try:
            async with asyncio.timeout(self.settings.timeout_ms / 1_000):
                await self._call(now_ms() + self.settings.timeout_ms, lambda call: c.Follow(prefix, call))
        except TimeoutError:
            self.unfollow(subscription)
            raise Unavailable(f"the subscription to {prefix!r} was not answered in time: try again") from None
        except BaseException:
            self.unfollow(subscription)
            raise

    def unfollow(self, subscription: Subscription) -> None:
        """For `Subscription`: stop receiving changes."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            if not self._follows(subscription.prefix) and not self._connector.closed:
                self._feed(c.Unfollow(subscription.prefix))

    def _follows(self, prefix: bytes) -> bool:
        return any(other.prefix == prefix for other in self._subscriptions)

    # --- statistics and lifetime ---

    def statistics(self) -> Statistics:
        """Counters since this client was created, and its current size."""
        machine, entries = self.machine, self.machine.entries
        hits = entries.hits()
        return Statistics(
            hits,
            machine.misses,
            machine.callbacks,
            machine.refills,
            len(entries),
            entries.bytes,
            entries.dropped_for_space,
        )

    async def connected(self, timeout_s: float) -> None:
        """Wait until an authority has answered; `Unavailable` if none does in time, or if nothing listens anywhere.

        Calls connect automatically, and wait longer: a server may be restarting.
        """
        await self._connector.answered(now_ms() + round(timeout_s * 1_000))

    async def close(self) -> None:
        """Drop everything and release all leases, so that no write waits for this client."""
        if self._connector.closed:
            return
        self._feed(c.Lost())  # a write that was sent and not answered has an unknown outcome
        self.machine.entries.clear()
        self._calls.fail_all("the cache client was closed", CallerError)
        await self._connector.close()

    # --- calls ---

    async def _read(self, keys: tuple[bytes, ...]) -> dict[bytes, Value]:
        for key in keys:
            objection = objection_to_key(key)
            if objection is not None:
                raise InvalidArgument(objection)
        deadline_ms = now_ms() + self.settings.timeout_ms
        found: dict[bytes, Value] = await self._call(
            deadline_ms, lambda call: c.Get(keys, call, deadline_ms), len(keys)
        )
        return found

    async def _call(self, deadline_ms: int, event: Callable[[int], c.ClientEvent], keys: int = 0) -> Any:
        """Feed the event for a new call and wait for its result. While no authority serves, try the next address.

        `NotServing` means that nothing was done, so a write may be sent again, too.
        """
        connector, calls = self._connector, self._calls
        while True:
            if connector.link is None:
                await connector.linked(deadline_ms)
            link = connector.link
            call = calls.begin(keys)
            self._feed(event(call))
            try:
                return await calls.result(call)
            except NotServing:
                await connector.elsewhere(link, deadline_ms)

    # --- the machine on the loop ---

    def _feed(self, event: c.ClientEvent) -> None:
        at_ms = _clock_ns(_BOOTTIME) // _NS_PER_MS  # not `now_ms()`: this runs for every message
        for effect in self.machine.handle(at_ms, event):
            if type(effect) is c.Transmit:
                self._transmit(effect.message)
            else:
                self._do(effect)
        wake_ms = self.machine.next_wake_ms()
        if wake_ms is not None and wake_ms < self._timer_ms:
            self._schedule(at_ms, wake_ms)

    def _do(self, effect: c.ClientEffect) -> None:
        match effect:
            case c.Deliver(call, key, value, version):
                self._calls.deliver(call, key, Value(value, version))
            case c.Done(call, version):
                self._calls.finish(call, version)
            case c.Fail(call, code, message, version):
                self._calls.fail(call, error_of(code, message, version))
            case c.Leave():
                self._connector.leave()
            case c.Notify(changes, missed):
                for subscription in self._subscriptions:
                    subscription.take(changes, missed)

    def _schedule(self, at_ms: int, wake_ms: int) -> None:
        """Set the only timer. One that fires early schedules the next."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake_ms
        self._timer = asyncio.get_running_loop().call_later(max(1, wake_ms - at_ms) / 1_000, self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_ms = None, FOREVER_MS
        if not self._connector.closed:
            self._feed(c.Tick())


def _after_fork() -> None:
    """The child shares nothing with its parent: neither its identity nor its leases."""
    for client in list(_clients):
        if not client._connector.closed:
            client._reset()


os.register_at_fork(after_in_child=_after_fork)

__all__ = ["ABSENT", "Client", "Statistics", "Value", "Version"]
