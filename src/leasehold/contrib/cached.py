"""`cached`: a function whose results are kept in every process, and are never stale after an acknowledged write.

    client = SyncClient("127.0.0.1:7400")

    @cached(client, key=lambda user: f"user:{user}")
    def load_user(user: int) -> dict: ...

    update_database(7)
    load_user.invalidate(7)        # returns once no process of the fleet returns the old result any more

With `Client` it decorates a coroutine function, and `await load_user.invalidate(7)`.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, overload

from leasehold.base.errors import InvalidArgument
from leasehold.cache import Client, Conflict, SyncClient, Value, Version
from leasehold.contrib.expiring import packed, unpacked

P = ParamSpec("P")
T = TypeVar("T")
# The result was invalidated. Not a deletion: that would leave the version of a key that never existed, and a result
# that was computed before the invalidation could be stored after it.
INVALID = b""


class _Results(Generic[P]):
    """How arguments become keys, and results values."""

    def __init__(self, function: Callable[P, Any], key: Callable[P, str | bytes] | None, ttl_s: float | None) -> None:
        if ttl_s is not None and ttl_s <= 0:
            raise InvalidArgument(f"ttl_s is more than 0, not {ttl_s!r}")
        self._given = key
        self._name = f"{function.__module__}.{function.__qualname__}".encode()
        self._ttl_s = ttl_s

    def key(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        """The key for these arguments. Without a function of the user's: the function's name and the arguments."""
        if self._given is not None:
            given = self._given(*args, **kwargs)
            return given.encode() if isinstance(given, str) else given
        return self._name + b"\0" + repr((args, sorted(kwargs.items()))).encode()

    def stored(self, result: object) -> bytes:
        end_s = None if self._ttl_s is None else time.time() + self._ttl_s
        return packed(pickle.dumps(result, pickle.HIGHEST_PROTOCOL), end_s)

    @staticmethod
    def found(value: Value) -> tuple[bool, Any, Version]:
        """Whether there is a valid result, the result, and the version."""
        stored = unpacked(value.value)
        return stored is not None, pickle.loads(stored) if stored is not None else None, value.version


class CachedFunction(Generic[P, T]):
    """A plain function with cached results."""

    def __init__(self, client: SyncClient, function: Callable[P, T], results: _Results[P]) -> None:
        self._client = client
        self._function = function
        self._results = results
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        key = self._results.key(*args, **kwargs)
        stored = unpacked(self._client.get(key))
        if stored is not None:
            hit: T = pickle.loads(stored)
            return hit
        while True:
            valid, kept, version = self._results.found(self._client.get_versioned(key))
            if valid:
                return kept  # type: ignore[no-any-return]
            result = self._function(*args, **kwargs)
            try:
                self._client.put(key, self._results.stored(result), expect=version)
            except Conflict:
                continue  # stored or invalidated meanwhile: this result may be the old one
            return result

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Forget the result for these arguments, in all processes."""
        self._client.put(self._results.key(*args, **kwargs), INVALID)


class CachedCoroutine(Generic[P, T]):
    """A coroutine function with cached results."""

    def __init__(self, client: Client, function: Callable[P, Awaitable[T]], results: _Results[P]) -> None:
        self._client = client
        self._function = function
        self._results = results
        update_wrapper(self, function)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        key = self._results.key(*args, **kwargs)
        while True:
            valid, kept, version = self._results.found(await self._client.get_versioned(key))
            if valid:
                return kept  # type: ignore[no-any-return]
            result = await self._function(*args, **kwargs)
            try:
                await self._client.put(key, self._results.stored(result), expect=version)
            except Conflict:
                continue  # stored or invalidated meanwhile: this result may be the old one
            return result

    async def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Forget the result for these arguments, in all processes."""
        await self._client.put(self._results.key(*args, **kwargs), INVALID)


class _ForCoroutines(Generic[P]):
    def __init__(self, client: Client, key: Callable[P, str | bytes] | None, ttl_s: float | None) -> None:
        self._client, self._key, self._ttl_s = client, key, ttl_s

    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]]) -> CachedCoroutine[P, T]:
        return CachedCoroutine(self._client, function, _Results(function, self._key, self._ttl_s))


class _ForFunctions(Generic[P]):
    def __init__(self, client: SyncClient, key: Callable[P, str | bytes] | None, ttl_s: float | None) -> None:
        self._client, self._key, self._ttl_s = client, key, ttl_s

    def __call__(self, function: Callable[P, T]) -> CachedFunction[P, T]:
        return CachedFunction(self._client, function, _Results(function, self._key, self._ttl_s))


@overload
def cached(
    client: Client, key: Callable[P, str | bytes] | None = None, *, ttl_s: float | None = None
) -> _ForCoroutines[P]: ...


@overload
def cached(
    client: SyncClient, key: Callable[P, str | bytes] | None = None, *, ttl_s: float | None = None
) -> _ForFunctions[P]: ...


def cached(
    client: Client | SyncClient, key: Callable[P, str | bytes] | None = None, *, ttl_s: float | None = None
) -> _ForCoroutines[P] | _ForFunctions[P]:
    """Cache the results of a function. `key` makes the key from its arguments; results are pickled.

    Calls of several processes for the same absent key may all call the function; one result is stored.
    """
    if isinstance(client, Client):
        return _ForCoroutines(client, key, ttl_s)
    return _ForFunctions(client, key, ttl_s)
