"""Waiting for the owner of memory to ping for the first time since a restart of the whole cluster (H9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leasehold.ha.serving import Serving
from leasehold.wire.answers import Answer, Later
from leasehold.wire.frame import Err
from leasehold.wire.sending import refusal

_PAUSE_S: Final = 0.05
OWNER_WAIT_MS: Final = 20_000  # less than the 30 s that Mooncake's clients wait for an answer


def wait_for_owner(serving: Serving, seq: int, again: Callable[[int], Answer], until_ms: int, kept_bytes: int) -> Later:
    """Try the request again a little later, as long as a client waits.

    After that the outcome is unknown, never "not there". `until_ms` is 0 the first time, then the value that `again`
    receives; `kept_bytes` is the size of the request.
    """
    until_ms = until_ms or serving.now_ms + OWNER_WAIT_MS

    def retry() -> Answer:
        if serving.now_ms > until_ms:
            return refusal(seq, Err.TIMED_OUT, "the owner of the memory has not pinged yet")
        return again(until_ms)

    return Later(retry, kept_bytes, _PAUSE_S)
