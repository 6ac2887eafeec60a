"""The pool for synchronous code: the same calls, each run on a background loop and waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from leasehold.base.errors import LeaseholdError
from leasehold.pool.pool import Pool
from leasehold.runtime.portal import Portal
from leasehold.wire.client import Key
from leasehold.wire.finder import Finder


class SyncPool:
    """See `Pool`. May be used from many threads."""

    def __init__(self, master: str | Finder, *, portal: Portal | None = None, **options: Any) -> None:
        self._portal = portal or Portal.shared()

        async def make() -> Pool:
            return Pool(master, **options)

        self.pool = self._portal.call(make)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def put(self, key: Key, data: bytes, **options: Any) -> None:
        self._portal.call(self.pool.put, key, data, **options)

    def put_many(self, objects: Mapping[Key, bytes], **options: Any) -> dict[Key, LeaseholdError]:
        return self._portal.call(self.pool.put_many, objects, **options)

    def get(self, key: Key) -> bytes | None:
        return self._portal.call(self.pool.get, key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, bytes | LeaseholdError | None]:
        return self._portal.call(self.pool.get_many, keys)

    def exists(self, key: Key) -> bool:
        return self._portal.call(self.pool.exists, key)

    def remove(self, key: Key, *, force: bool = False) -> None:
        self._portal.call(self.pool.remove, key, force=force)

    def close(self) -> None:
        async def close() -> None:
            self.pool.close()

        self._portal.call(close)
