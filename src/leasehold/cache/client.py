"""A caching client: values in its own memory, never stale.

async with Client("127.0.0.1:7400") as cache:
    value = await cache.get(b"limits")          # from memory while its lease is valid
    await cache.put(b"limits", b"100")          # takes effect when nobody can hold the old value any more
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
from leasehold.cache.connector import Line, now_ms
from leasehold.cache.errors import NotServing, error_of
from leasehold.cache.key_state import FOREVER_MS
from leasehold.cache.model import ABSENT, Version, Write
from leasehold.cache.settings import ClientSettings
from leasehold.cache.subscription import Subscription
from leasehold.runtime.closing import AsyncClosing

_NS_PER_MS: Final = 1_000_000
_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_clock_ns = time.clock_gettime_ns
_BOOTTIME: Final = time.CLOCK_BOOTTIME


class Value(Struct, frozen=True):
    """A value (None: absent) with the version by which `expect` knows it."""

    value: bytes | None
    version: Version


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

    def __init__(self, where: str | Sequence[str] | Authority, settings: ClientSettings | None = None) -> None:
        self.settings = settings or ClientSettings()
        self._where = where
        self._reset()
        _clients.add(self)

    def _reset(self) -> None:
        """Begin anew: nothing kept, nothing in flight, nobody's identity."""
        self.identity = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
        self.machine = ClientMachine(self.settings)
        self._entries = self.machine.entries
        self._find = self._entries.by_key.get
        self._touch = self._entries.by_key.move_to_end
        self._line = Line(self._where, self.identity, self._feed)
        self._transmit = self._line.send
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._gathers: dict[int, tuple[int, dict[bytes, Value]]] = {}  # reads of several keys, not yet complete
        self._waiter = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = FOREVER_MS
        self._subscriptions: list[Subscription] = []

    # --- reading ---

    async def get(self, key: bytes) -> bytes | None:
        """The value, or None if the key is absent: from memory while the lease is valid, else asked for."""
        entry = self._find(key)
        if entry is not None and (now_ns := _clock_ns(_BOOTTIME)) < entry.deadline_ns:
            entry.hits += 1
            if now_ns >= entry.touch_ns:
                entry.touch_ns = now_ns + self._entries.touch_every_ns
                self._touch(key)
            return entry.value
        return (await self._ask((key,)))[key].value

    def get_local(self, key: bytes) -> Value | None:
        """What is in memory under a valid lease; None if it would have to be asked for. Never waits."""
        entry = self._find(key)
        if entry is not None and _clock_ns(_BOOTTIME) < entry.deadline_ns:
            entry.hits += 1  # and no touch: other threads may call this, and the loop may drop the key meanwhile
            return Value(entry.value, entry.version)
        return None

    async def get_versioned(self, key: bytes) -> Value:
        """The value and its version, for a later compare-and-set."""
        return self.get_local(key) or (await self._ask((key,)))[key]

    async def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """Several values, those that are missing asked for in one request. Each is true by itself, not as one cut."""
        wanted = tuple(dict.fromkeys(keys))
        found = await self._ask(wanted) if wanted else {}
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
        """Write, and return once it has taken effect: no cache anywhere can give the old value any more.

        With `expect` only if that version stands (`ABSENT`: only if the key is not there), else `Conflict`.
        """
        if value is None:
            raise InvalidArgument("a value is bytes, not None: `delete` deletes")
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
            raise InvalidArgument(f"a timeout of {timeout_s} s makes no sense")
        timeout_ms = self.settings.timeout_ms if timeout_s is None else round(timeout_s * 1_000)
        objection = objection_to_write(Write(0, key, value, mode, expect, timeout_ms))
        if objection:
            raise InvalidArgument(objection)
        deadline_ms = now_ms() + timeout_ms

        def put(waiter: int) -> c.Put:
            return c.Put(key, value, waiter, mode, max(1, deadline_ms - now_ms()), expect)

        version: Version = await self._call(deadline_ms, put)
        return version

    # --- hearing of changes ---

    def subscribe(self, prefix: bytes) -> Subscription:
        """`async with client.subscribe(b"conf/") as changes: async for change in changes: ...`

        It notifies, it does not deliver: read the key. `missed` says that there may have been more.
        """
        return Subscription(self, prefix)

    async def follow(self, subscription: Subscription) -> None:
        """For `Subscription`: begin to hear of its prefix."""
        prefix = subscription.prefix
        objection = objection_to_prefix(prefix)
        if objection:
            raise InvalidArgument(objection)
        first = not self._follows(prefix)
        self._subscriptions.append(subscription)
        if not first:
            return
        try:
            async with asyncio.timeout(self.settings.timeout_ms / 1_000):
                await self._call(now_ms() + self.settings.timeout_ms, lambda waiter: c.Follow(prefix, waiter))
        except TimeoutError:
            self.unfollow(subscription)
            raise Unavailable(f"the subscription to {prefix!r} was not answered in time: try again") from None
        except BaseException:
            self.unfollow(subscription)
            raise

    def unfollow(self, subscription: Subscription) -> None:
        """For `Subscription`: no longer."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            if not self._follows(subscription.prefix) and not self._line.closed:
                self._feed(c.Follow(subscription.prefix, 0, on=False))

    def _follows(self, prefix: bytes) -> bool:
        return any(other.prefix == prefix for other in self._subscriptions)

    # --- the rest ---

    def statistics(self) -> Statistics:
        """What was counted since this client was made, and what it holds now."""
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
        """Wait until an authority has answered; `Unavailable` when none does in time, or nothing listens anywhere.

        Calls do this by themselves, and have the patience to wait for a server that is being restarted.
        """
        await self._line.answered(now_ms() + round(timeout_s * 1_000))

    async def close(self) -> None:
        """Drop everything and say so, so that no write waits for this client."""
        if self._line.closed:
            return
        self._feed(c.Lost())  # a write that was sent has an unknown outcome, whoever closes the client
        self.machine.entries.clear()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(CallerError("the cache client was closed"))
        await self._line.close()

    # --- asking ---

    async def _ask(self, keys: tuple[bytes, ...]) -> dict[bytes, Value]:
        for key in keys:
            objection = objection_to_key(key)
            if objection:
                raise InvalidArgument(objection)
        deadline_ms = now_ms() + self.settings.timeout_ms
        found: dict[bytes, Value] = await self._call(
            deadline_ms, lambda waiter: c.Get(keys, waiter, deadline_ms), len(keys)
        )
        return found

    async def _call(self, deadline_ms: int, event: Callable[[int], c.ClientEvent], keys: int = 0) -> Any:
        """Feed what `event` makes for a waiter, and wait for its result; where nobody is in office, the next is asked.

        "Not in office" means that nothing was done, so also a write may be sent again.
        """
        line = self._line
        while True:
            if line.link is None:
                await line.linked(deadline_ms)
            link = line.link
            waiter, future = self._promise(keys)
            self._feed(event(waiter))
            try:
                return await self._result(waiter, future)
            except NotServing:
                await line.elsewhere(link, deadline_ms)

    def _promise(self, keys: int = 0) -> tuple[int, asyncio.Future[Any]]:
        self._waiter += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._futures[self._waiter] = future
        if keys:
            self._gathers[self._waiter] = (keys, {})
        return self._waiter, future

    async def _result(self, waiter: int, future: asyncio.Future[Any]) -> Any:
        try:
            return await future
        finally:
            self._futures.pop(waiter, None)
            self._gathers.pop(waiter, None)

    # --- the machine on the loop ---

    def _feed(self, event: c.ClientEvent) -> None:
        at_ms = _clock_ns(_BOOTTIME) // _NS_PER_MS  # not `now_ms()`: it is done for everything that comes
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
            case c.Deliver(waiter, key, value, version):
                gather = self._gathers.get(waiter)
                if gather is not None:
                    gather[1][key] = Value(value, version)
                    if len(gather[1]) == gather[0]:
                        self._settle(waiter, gather[1])
            case c.Done(waiter, version):
                self._settle(waiter, version)
            case c.Fail(waiter, code, message, version):
                future = self._futures.get(waiter)
                if future is not None and not future.done():
                    future.set_exception(error_of(code, message, version))
            case c.Leave():
                self._line.leave()
            case c.Notify(changes, missed):
                for subscription in self._subscriptions:
                    subscription.take(changes, missed)

    def _settle(self, waiter: int, result: object) -> None:
        future = self._futures.get(waiter)
        if future is not None and not future.done():
            future.set_result(result)

    def _schedule(self, at_ms: int, wake_ms: int) -> None:
        """One timer is set at a time; one that rings too early looks again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake_ms
        self._timer = asyncio.get_running_loop().call_later(max(1, wake_ms - at_ms) / 1_000, self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_ms = None, FOREVER_MS
        if not self._line.closed:
            self._feed(c.Tick())


def _after_fork() -> None:
    """The child shares nothing with its parent: neither the identity that is called back, nor what it was given."""
    for client in list(_clients):
        if not client._line.closed:
            client._reset()


os.register_at_fork(after_in_child=_after_fork)

__all__ = ["ABSENT", "Client", "Statistics", "Value", "Version"]
