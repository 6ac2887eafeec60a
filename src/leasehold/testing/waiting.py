"""Waits for a condition instead of a fixed time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable

from leasehold.runtime.clock import BootClock
from leasehold.testing.process import START_TIMEOUT_S, ServerFailed


async def until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str = "the condition",
    timeout_s: float = START_TIMEOUT_S,
    poll_s: float = 0.01,
) -> None:
    """Wait until `condition()` is true (it may be async); `what` names it in the error."""
    clock = BootClock()
    deadline_ms = clock.now_ms() + int(timeout_s * 1000)
    while True:
        held = condition()
        if await held if isawaitable(held) else held:
            return
        if clock.now_ms() > deadline_ms:
            raise ServerFailed(f"not within {timeout_s:g} s: {what}")
        await asyncio.sleep(poll_s)
