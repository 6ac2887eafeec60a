"""A client of a store in this process: `memory://` and `embedded:///dir`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from leasehold.base.errors import InvalidArgument, Unavailable, UnknownOutcome
from leasehold.coord.api import Coord
from leasehold.coord.errors import ClientClosed
from leasehold.coord.url import ConnectOptions, CoordUrl
from leasehold.mvcc.errors import StoreError
from leasehold.mvcc.model import (
    CompactResult,
    LeaseGrantResult,
    LeaseKeepAliveResult,
    LeaseListResult,
    LeaseRevokeResult,
    LeaseTimeToLiveResult,
    Op,
    OpResult,
    Range,
    Status,
    Watch,
)
from leasehold.mvcc.store import Store
from leasehold.store import opening
from leasehold.store.engine import Engine
from leasehold.store.keepalive import LocalKeepAlive
from leasehold.store.status import status_of
from leasehold.store.watch import LocalWatch

T = TypeVar("T")


class LocalClient(Coord):
    """`Coord` on an engine. An answer waits until the state that it shows is on disk; in memory nothing waits."""

    def __init__(self, engine: Engine, *, timeout_s: float = 5.0, on_close: Callable[[], None] | None = None) -> None:
        self.engine = engine
        self._timeout_s = timeout_s
        self._on_close = on_close
        self._watches: list[LocalWatch] = []
        self._kept: list[LocalKeepAlive] = []
        self._closed = False

    def _run(self, call: Callable[[Store, int], T]) -> T:
        if self._closed:
            raise ClientClosed
        engine = self.engine
        with engine.lock:
            result = call(engine.store, engine.enter())
            engine.leave()
        return result

    def immediately(self, op: Op) -> OpResult | None:
        """Run `op` now, if the store is in memory only. Else returns None, without having done anything."""
        if not self.engine.in_memory:
            return None
        if self._closed:
            raise ClientClosed
        return self.engine.execute(op)

    async def _write(self, call: Callable[[Store, int], T], timeout_s: float | None) -> T:
        try:
            result = self._run(call)
        except StoreError:
            await self._settle_read(timeout_s)  # an error shows state, too, which a crash must not undo
            raise
        if self.engine.unsettled:
            await self.engine.settled(self._timeout_s if timeout_s is None else timeout_s)
        return result

    async def _read(self, call: Callable[[Store, int], T], timeout_s: float | None) -> T:
        try:
            result = self._run(call)
        except StoreError:
            await self._settle_read(timeout_s)
            raise
        if self.engine.unsettled:
            await self._settle_read(timeout_s)
        return result

    async def _settle_read(self, timeout_s: float | None) -> None:
        """Wait for the disk. A read changes nothing, so its outcome is never unknown."""
        try:
            await self.engine.settled(self._timeout_s if timeout_s is None else timeout_s)
        except UnknownOutcome as error:
            raise Unavailable(f"the disk does not answer, so the state cannot be read now ({error})") from None

    async def do(self, op: Op, timeout_s: float | None = None) -> Any:
        if self._closed:
            raise ClientClosed
        engine = self.engine
        try:
            result = engine.execute(op)
        except StoreError:
            await self._settle_read(timeout_s)  # an error shows state, too, which a crash must not undo
            raise
        if engine.unsettled:
            if isinstance(op, Range):
                await self._settle_read(timeout_s)
            else:
                await engine.settled(self._timeout_s if timeout_s is None else timeout_s)
        return result

    def open_watch(self, request: Watch) -> LocalWatch:
        if self._closed:
            raise ClientClosed
        watch = LocalWatch(self.engine, request)
        self._watches = [other for other in self._watches if not other.ended] + [watch]
        return watch

    async def compact(self, revision: int, *, physical: bool = False, timeout_s: float | None = None) -> CompactResult:
        return await self._write(lambda store, _now: store.compact(revision), timeout_s)

    async def lease_grant(self, ttl_s: int, lease_id: int = 0, *, timeout_s: float | None = None) -> LeaseGrantResult:
        return await self._write(lambda store, now_ms: store.lease_grant(now_ms, ttl_s, lease_id), timeout_s)

    async def lease_revoke(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseRevokeResult:
        return await self._write(lambda store, _now: store.lease_revoke(lease_id), timeout_s)

    async def lease_keep_alive_once(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseKeepAliveResult:
        return await self._write(lambda store, now_ms: store.lease_keep_alive(now_ms, lease_id), timeout_s)

    async def lease_time_to_live(
        self, lease_id: int, *, keys: bool = False, timeout_s: float | None = None
    ) -> LeaseTimeToLiveResult:
        return await self._read(lambda store, now_ms: store.lease_time_to_live(now_ms, lease_id, keys=keys), timeout_s)

    async def leases(self, *, timeout_s: float | None = None) -> LeaseListResult:
        return await self._read(lambda store, _now: store.leases(), timeout_s)

    def keep_alive(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> LocalKeepAlive:
        """Renew `lease_id` until the handle or this client is closed."""
        if self._closed:
            raise ClientClosed
        kept = LocalKeepAlive(self.engine, lease_id, ttl_s, granted_sent_ms)
        self._kept = [other for other in self._kept if not other.ended] + [kept]
        return kept

    async def status(self, *, timeout_s: float | None = None) -> Status:
        with self.engine.lock:
            self.engine.enter()
            return status_of(self.engine)

    def now_ms(self) -> int:
        return self.engine.clock.now_ms()

    async def close(self) -> None:
        """End this client's watches and renewals. The last client of a store on disk closes the store."""
        if self._closed:
            return
        self._closed = True
        for kept in self._kept:
            kept.close()
        for watch in self._watches:
            await watch.close()
        if self._on_close is not None:
            await asyncio.to_thread(self._on_close)


async def open_memory(url: CoordUrl, options: ConnectOptions) -> LocalClient:
    """`memory://` opens a new store; `memory://name` is one store that this process shares until it exits."""
    if not url.name:
        engine = opening.open_memory()
        return LocalClient(engine, timeout_s=options.timeout_s, on_close=engine.close)
    name = f"memory://{url.name}"
    engine = opening.acquire(name, opening.open_memory)
    return LocalClient(engine, timeout_s=options.timeout_s, on_close=lambda: opening.release(name, keep=True))


async def open_embedded(url: CoordUrl, options: ConnectOptions) -> LocalClient:
    """The store in a directory. All clients of this process share one engine."""
    if url.path is None:
        raise InvalidArgument("embedded:// needs a directory: embedded:///var/lib/leasehold")
    path = url.path.resolve()
    name = f"embedded://{path}"
    engine = await asyncio.to_thread(opening.acquire, name, lambda: opening.open_folder(path))
    return LocalClient(engine, timeout_s=options.timeout_s, on_close=lambda: opening.release(name))
