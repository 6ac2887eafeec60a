"""Hearing of changes under a prefix."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct

from leasehold.cache.model import Version

if TYPE_CHECKING:
    from leasehold.cache.client import Client

_WAITING_MAX: Final = 10_000


class Change(Struct, frozen=True):
    """A key that has changed, or (`missed`, with an empty key) that there may have been changes untold."""

    key: bytes
    version: Version | None
    missed: bool = False


class Subscription:
    """An async iterator of `Change`; changes of one key that nobody has taken yet become one."""

    def __init__(self, client: Client, prefix: bytes) -> None:
        self.prefix = prefix
        self._client = client
        self._waiting: dict[bytes, Change] = {}
        self._arrived = asyncio.Event()

    def take(self, changes: tuple[tuple[bytes, Version], ...], missed: bool) -> None:
        """For the client: what the authority has told."""
        for key, version in changes:
            if key.startswith(self.prefix):
                self._waiting[key] = Change(key, version)
        if len(self._waiting) > _WAITING_MAX:
            self._waiting.clear()
            missed = True
        if missed:
            self._waiting[b""] = Change(b"", None, missed=True)
        if self._waiting:
            self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.pop(next(iter(self._waiting)))

    async def __aenter__(self) -> Self:
        await self._client.follow(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.unfollow(self)
