"""Base classes that give an object with `close()` the `with` and `async with` statements."""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Self


class Closing:
    """Calls `close()` at the end of a `with` block."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClosing:
    """Calls `close()` at the end of an `async with` block, and awaits it if it returns an awaitable."""

    __slots__ = ()

    def close(self) -> Awaitable[object] | None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = self.close()
        if ended is not None:
            await ended
