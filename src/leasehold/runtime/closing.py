"""`with` and `async with` for what has nothing to do on entering and ends by its own `close()`."""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Self


class Closing:
    """A block at whose end `close()` is called."""

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
    """The same on a loop; `close` may have to be awaited, or not."""

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
