"""`leasehold.Client` for synchronous code: the same calls, each waiting for its answer.

with SyncClient("127.0.0.1:50051") as master:
    master.exist_key("k")
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from leasehold.runtime.portal import Portal
from leasehold.wire.client import Client
from leasehold.wire.finder import Finder


class SyncClient:
    """Every method of `Client` under the same name, run on a portal's loop. May be used from many threads."""

    def __init__(self, master: str | Finder, *, portal: Portal | None = None, **options: Any) -> None:
        self.portal = portal or Portal.shared()

        async def make() -> Client:  # on the loop that it will live on
            return Client(master, **options)

        self.client = self.portal.call(make)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self.portal.call, getattr(self.client, name))

    def close(self) -> None:
        async def end() -> None:
            self.client.close()

        self.portal.call(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
