"""A cache back end for Django: values in each process's memory, never stale.

    CACHES = {
        "default": {
            "BACKEND": "leasehold.contrib.django.LeaseholdCache",
            "LOCATION": "127.0.0.1:7400",            # leasehold cache serve; several: a list, or "a:7400,b:7400"
            "OPTIONS": {"NAME": "shop", "MAX_ENTRIES": 10_000},
        }
    }

A write returns once no process of the fleet can read the old value any more. `incr`, `add` and `touch` are atomic.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from leasehold.cache import Client, ClientSettings
from leasehold.contrib.expiring import Bounds, ExpiringEntries, packed, unpacked
from leasehold.contrib.extras import require
from leasehold.runtime.portal import Portal

require("django", "django", __name__)

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache  # noqa: E402
from django.core.exceptions import ImproperlyConfigured  # noqa: E402

T = TypeVar("T")
_clients: dict[tuple[str, ...], Client] = {}
_clients_lock = threading.Lock()


def _shared_client(addresses: tuple[str, ...]) -> Client:
    """One client for each process: Django makes a cache object for each thread. After a fork it begins empty."""
    with _clients_lock:
        if addresses not in _clients:
            _clients[addresses] = Client(list(addresses), ClientSettings())
        return _clients[addresses]


class LeaseholdCache(BaseCache):
    """The back end. See the module."""

    pickle_protocol = pickle.HIGHEST_PROTOCOL

    def __init__(self, location: str | list[str], params: dict[str, Any]) -> None:
        super().__init__(params)
        given = location.replace(";", ",").split(",") if isinstance(location, str) else location
        addresses = tuple(address.strip() for address in given if address.strip())
        if not addresses:
            raise ImproperlyConfigured("LOCATION is the address of `leasehold cache serve`, such as '127.0.0.1:7400'")
        self._client = _shared_client(addresses)
        self._entries = ExpiringEntries(lambda: self._client, (params.get("OPTIONS") or {}).get("NAME", "django"))

    # --- how calls get to the cache ---

    @property
    def _bounds(self) -> Bounds:
        return Bounds(self._max_entries, self._cull_frequency)

    def _run(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        return Portal.shared().call(function, *args)

    async def _arun(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        return await asyncio.wrap_future(Portal.shared().submit(function, *args))

    def _dumps(self, value: object) -> bytes:
        # Whole numbers are stored as text, so that other programs can read counters.
        if type(value) is int:
            return b"i%d" % value
        return b"p" + pickle.dumps(value, self.pickle_protocol)

    def _loads(self, stored: bytes | None, default: Any) -> Any:
        if stored is None:
            return default
        return int(stored[1:]) if stored[:1] == b"i" else pickle.loads(stored[1:])

    def _local(self, key: str) -> tuple[bool, bytes | None]:
        """Whether this process has the key under a valid lease, and its value."""
        found = self._client.get_local(self._entries.stored_key(key))
        return found is not None, unpacked(found.value) if found else None

    # --- reading ---

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        key = self.make_and_validate_key(key, version=version)
        here, stored = self._local(key)
        return self._loads(stored if here else self._run(self._entries.get, key), default)

    async def aget(self, key: str, default: Any = None, version: int | None = None) -> Any:
        key = self.make_and_validate_key(key, version=version)
        here, stored = self._local(key)
        return self._loads(stored if here else await self._arun(self._entries.get, key), default)

    def get_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        made = {self.make_and_validate_key(key, version=version): key for key in keys}
        found = self._run(self._entries.get_many, list(made))
        return {made[key]: self._loads(stored, None) for key, stored in found.items()}

    async def aget_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        made = {self.make_and_validate_key(key, version=version): key for key in keys}
        found = await self._arun(self._entries.get_many, list(made))
        return {made[key]: self._loads(stored, None) for key, stored in found.items()}

    def has_key(self, key: str, version: int | None = None) -> bool:
        return self.get(key, self._missing_key, version=version) is not self._missing_key

    # --- writing ---

    def set(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        self._run(self._set, self.make_and_validate_key(key, version=version), self._dumps(value), timeout)

    async def aset(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        await self._arun(self._set, self.make_and_validate_key(key, version=version), self._dumps(value), timeout)

    async def _set(self, key: str, stored: bytes, timeout: Any) -> None:
        await self._entries.set(key, stored, self.get_backend_timeout(timeout), self._bounds)

    def set_many(self, data: dict[str, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> list[str]:
        self._run(self._set_many, self._prepared(data, version), timeout)
        return []

    async def aset_many(
        self, data: dict[str, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[str]:
        await self._arun(self._set_many, self._prepared(data, version), timeout)
        return []

    def _prepared(self, data: dict[str, Any], version: int | None) -> dict[str, bytes]:
        return {self.make_and_validate_key(key, version=version): self._dumps(value) for key, value in data.items()}

    async def _set_many(self, prepared: dict[str, bytes], timeout: Any) -> None:
        await asyncio.gather(*(self._set(key, stored, timeout) for key, stored in prepared.items()))

    def add(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return self._run(self._add, self.make_and_validate_key(key, version=version), self._dumps(value), timeout)

    async def aadd(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        made = self.make_and_validate_key(key, version=version)
        return await self._arun(self._add, made, self._dumps(value), timeout)

    async def _add(self, key: str, stored: bytes, timeout: Any) -> bool:
        return await self._entries.add(key, stored, self.get_backend_timeout(timeout), self._bounds)

    def touch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        made = self.make_and_validate_key(key, version=version)
        return self._run(self._entries.touch, made, self.get_backend_timeout(timeout))

    async def atouch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        made = self.make_and_validate_key(key, version=version)
        return await self._arun(self._entries.touch, made, self.get_backend_timeout(timeout))

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> Any:
        return self._run(self._incr, key, delta, version)

    async def aincr(self, key: str, delta: int = 1, version: int | None = None) -> Any:
        return await self._arun(self._incr, key, delta, version)

    async def _incr(self, key: str, delta: int, version: int | None) -> Any:
        """Add to a number, atomically in the whole fleet. Its timeout stays."""
        result: Any = None

        def increased(stored: bytes, end_s: float | None) -> bytes:
            nonlocal result
            result = self._loads(stored, None) + delta
            return packed(self._dumps(result), end_s)

        if not await self._entries.change(self.make_and_validate_key(key, version=version), increased):
            raise ValueError(f"Key '{key}' not found")
        return result

    def delete(self, key: str, version: int | None = None) -> bool:
        return self._run(self._delete, self.make_and_validate_key(key, version=version))

    async def adelete(self, key: str, version: int | None = None) -> bool:
        return await self._arun(self._delete, self.make_and_validate_key(key, version=version))

    async def _delete(self, key: str) -> bool:
        return await self._entries.delete(key, self._bounds)

    def clear(self) -> None:
        self._run(self._entries.clear, self._bounds)

    async def aclear(self) -> None:
        await self._arun(self._entries.clear, self._bounds)
