"""A back end for aiocache: `LeaseholdCache("127.0.0.1:7400", namespace="shop:")`.

Reads are answered from this process's memory while their lease is valid; a write returns once no process can read the
old value any more. `increment`, `add`, and aiocache's `RedLock` and `OptimisticLock` are atomic in the whole fleet.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from leasehold.cache import ABSENT, Client, ClientSettings, Conflict, Version
from leasehold.contrib.expiring import Bounds, ExpiringEntries, packed, together
from leasehold.contrib.extras import require

require("aiocache", "aiocache", __name__)

from aiocache.base import BaseCache  # noqa: E402
from aiocache.serializers import JsonSerializer  # noqa: E402


class LeaseholdCache(BaseCache):
    """The back end. `endpoint` is the address of `leasehold cache serve`, or several of them.

    `name` separates the entries of different programs; `entries_max` bounds them: beyond it, the oldest third is
    removed.
    It belongs to the event loop that uses it.
    """

    NAME = "leasehold"

    def __init__(
        self,
        endpoint: str | Sequence[str] = "127.0.0.1:7400",
        *,
        name: str = "aiocache",
        entries_max: int = 10_000,
        settings: ClientSettings | None = None,
        serializer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(serializer=serializer or JsonSerializer(), **kwargs)
        self._endpoint = endpoint
        self._settings = settings
        self._opened: Client | None = None
        self._bounds = Bounds(entries_max)
        self._entries = ExpiringEntries(self._client, name)

    def _client(self) -> Client:
        if self._opened is None:  # aiocache promises that commands work again after `close`
            self._opened = Client(self._endpoint, self._settings)
        return self._opened

    async def _get(self, key: str, encoding: str | None = "utf-8", _conn: object = None) -> Any:
        return _decoded(await self._entries.get(key), encoding)

    async def _gets(self, key: str, encoding: str | None = "utf-8", _conn: object = None) -> Any:
        """The token for `_set(_cas_token=)`, for `OptimisticLock`; None without a value, as in aiocache's back ends."""
        stored, version = await self._entries.get_versioned(key)
        return None if stored is None else version

    async def _multi_get(self, keys: list[str], encoding: str | None = "utf-8", _conn: object = None) -> list[Any]:
        found = await self._entries.get_many(keys)
        return [_decoded(found.get(key), encoding) for key in keys]

    async def _set(
        self, key: str, value: Any, ttl: float | None, _cas_token: Version | None = None, _conn: object = None
    ) -> bool:
        try:
            await self._entries.set(key, _encoded(value), _end_s(ttl), self._bounds, expect=_cas_token)
        except Conflict:
            return False
        return True

    async def _multi_set(self, pairs: list[tuple[str, Any]], ttl: float | None, _conn: object = None) -> bool:
        await together(self._set(key, value, ttl) for key, value in pairs)
        return True

    async def _add(self, key: str, value: Any, ttl: float | None, _conn: object = None) -> bool:
        if not await self._entries.add(key, _encoded(value), _end_s(ttl), self._bounds):
            raise ValueError(f"Key {key} already exists, use .set to update the value")
        return True

    async def _exists(self, key: str, _conn: object = None) -> bool:
        return await self._entries.get(key) is not None

    async def _increment(self, key: str, delta: int, _conn: object = None) -> int:
        result = delta

        def increased(stored: bytes, end_s: float | None) -> bytes:
            nonlocal result
            try:
                result = int(stored) + delta
            except ValueError:
                raise TypeError("Value is not an integer") from None
            return packed(str(result).encode(), end_s)

        while not await self._entries.change(key, increased):
            if await self._entries.add(key, str(delta).encode(), None, self._bounds):
                return delta
        return result

    async def _expire(self, key: str, ttl: float, _conn: object = None) -> bool:
        return await self._entries.touch(key, _end_s(ttl or None))

    async def _delete(self, key: str, _conn: object = None) -> int:
        return int(await self._entries.delete(key, self._bounds))

    async def _clear(self, namespace: str | None = None, _conn: object = None) -> bool:
        await self._entries.clear(self._bounds, namespace or self.namespace or "")
        return True

    async def _raw(
        self, command: str, *args: Any, encoding: str | None = "utf-8", _conn: object = None, **kwargs: Any
    ) -> Any:
        """Call a method of `leasehold.cache.Client`."""
        return await getattr(self._client(), command)(*args, **kwargs)

    async def _redlock_release(self, key: str, value: Any) -> int:
        """Delete the key if it has this value: a lock that meanwhile belongs to another client stays."""
        stored, version = await self._entries.get_versioned(key)
        if version == ABSENT or stored != _encoded(value):
            return 0
        try:
            return int(await self._entries.delete(key, self._bounds, expect=version))
        except Conflict:
            return 0

    async def _close(self, *args: Any, _conn: object = None, **kwargs: Any) -> None:
        client, self._opened = self._opened, None
        if client is not None:
            await client.close()

    def __repr__(self) -> str:
        return f"LeaseholdCache ({self._endpoint})"


def _encoded(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | float):
        return str(value).encode()
    raise TypeError(f"a value is text, bytes or a number after serialization, not {type(value).__name__}")


def _decoded(stored: bytes | None, encoding: str | None) -> Any:
    return stored if stored is None or encoding is None else stored.decode(encoding)


def _end_s(ttl: float | None) -> float | None:
    return None if ttl is None else time.time() + ttl
