"""The calls of a client's user that wait for a result."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from leasehold.cache.model import Version


class Value(Struct, frozen=True):
    """A value (None: absent) with its version, for use as `expect`."""

    value: bytes | None
    version: Version


class PendingCalls:
    """Each call has a number and a future. A read of several keys is finished when every key has a value."""

    def __init__(self) -> None:
        self._number = 0
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._reads: dict[int, tuple[int, dict[bytes, Value]]] = {}

    def begin(self, keys: int = 0) -> int:
        """The number of a new call; `keys` is how many values it reads."""
        self._number += 1
        self._futures[self._number] = asyncio.get_running_loop().create_future()
        if keys:
            self._reads[self._number] = (keys, {})
        return self._number

    async def result(self, call: int) -> Any:
        try:
            return await self._futures[call]
        finally:
            del self._futures[call]
            self._reads.pop(call, None)

    def deliver(self, call: int, key: bytes, value: Value) -> None:
        read = self._reads.get(call)
        if read is not None:
            keys, found = read
            found[key] = value
            if len(found) == keys:
                self.finish(call, found)

    def finish(self, call: int, result: object) -> None:
        future = self._futures.get(call)
        if future is not None and not future.done():
            future.set_result(result)

    def fail(self, call: int, error: Exception) -> None:
        future = self._futures.get(call)
        if future is not None and not future.done():
            future.set_exception(error)

    def fail_all(self, message: str, kind: type[Exception]) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(kind(message))
