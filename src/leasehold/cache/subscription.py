"""A subscription of a client to the changes under a prefix."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct

from leasehold.cache.model import Version

if TYPE_CHECKING:
    from leasehold.cache.client import Client

_QUEUED_MAX: Final = 10_000


class Change(Struct, frozen=True):
    """A key that has changed; or, with `missed` and an empty key, there may have been more changes."""

    key: bytes
    version: Version | None
    missed: bool = False


class Subscription:
    """An async iterator of `Change`. Changes of one key that were not yet consumed are merged."""

    def __init__(self, client: Client, prefix: bytes) -> None:
        self.prefix = prefix
        self._client = client
        self._queued: dict[bytes, Change] = {}
        self._arrived = asyncio.Event()

    def take(self, changes: tuple[tuple[bytes, Version], ...], missed: bool) -> None:
        """Called by the client with changes from the authority."""
        for key, version in changes:
            if key.startswith(self.prefix):
                self._queued[key] = Change(key, version)
        if len(self._queued) > _QUEUED_MAX:
            self._queued.clear()
            missed = True
        if missed:
            self._queued[b""] = Change(b"", None, missed=True)
        if self._queued:
            self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._queued:
            self._arrived.clear()
            await self._arrived.wait()
        return self._queued.pop(next(iter(self._queued)))

    async def __aenter__(self) -> Self:
        await self._client.follow(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.unfollow(self)
