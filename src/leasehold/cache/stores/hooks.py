"""Two functions of the user as the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from leasehold.cache.model import ABSENT, Version
from leasehold.cache.stores.api import Kept, Opened
from leasehold.cache.stores.sqlite import SqliteStore
from leasehold.runtime.clock import wall_us

LoadHook: TypeAlias = Callable[[bytes], Awaitable[Kept | bytes | None]]
StoreHook: TypeAlias = Callable[[bytes, bytes | None, Version], Awaitable[None]]


class HookStore:
    """`load(key)` returns the value (as `Kept` with its token, or as bytes); `store(key, value, token)` writes it.

    `store` must raise `TokenRefused` for a token older than the existing one. Otherwise a late write can undo a newer
    one, and failover is unsafe. The authority's own state (epoch, maximum lease term, clean stop) goes to the file
    `state`; without it every start waits for one maximum lease term before the first write.
    """

    is_memory = False

    def __init__(self, load: LoadHook, store: StoreHook, *, state: str | Path | None = None) -> None:
        self._load = load
        self._store = store
        self._state = SqliteStore(state) if state is not None else None

    async def open(self, term_ms: int) -> Opened:
        if self._state is None:
            return Opened(wall_us(), term_ms)
        return await self._state.open(term_ms)

    async def load(self, key: bytes) -> Kept | None:
        found = await self._load(key)
        return Kept(found, ABSENT) if isinstance(found, bytes) else found

    async def store(self, key: bytes, value: bytes | None, token: Version) -> None:
        await self._store(key, value, token)

    async def settle_term(self, term_ms: int) -> None:
        if self._state is not None:
            await self._state.settle_term(term_ms)

    async def mark_clean(self) -> None:
        if self._state is not None:
            await self._state.mark_clean()

    async def close(self) -> None:
        if self._state is not None:
            await self._state.close()
