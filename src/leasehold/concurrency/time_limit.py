"""A time limit for a recipe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leasehold.concurrency.errors import WaitTimeout


@asynccontextmanager
async def time_limit(timeout_s: float | None, what: str) -> AsyncIterator[None]:
    """`asyncio.timeout`, with an error that names the operation."""
    if timeout_s is None:
        yield
        return
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except WaitTimeout:
        raise
    except TimeoutError:
        raise WaitTimeout(f"{what}: not within {timeout_s} s; nothing was left behind") from None
