"""Read-only transactions: whoever asked may stop waiting, but the question is never taken back.

etcd 3.5.0 to 3.5.6 ends itself (issues 14110 and 14891 there) when such a transaction is cancelled, or its deadline
passes, while its ranges are read. A client that gives up on a slow member and asks the next one would end all of them,
one after the other; one impatient user of a lock is enough for a single node. Other calls do not harm it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

# etcd answers by itself within this time, if only with an error: 5 s and two of its election timeouts, by default.
LATE_ANSWER_S = 10.0


class UnhurriedCall:
    """A call that is left to itself when its time is up, or its caller is cancelled.

    `under_way` holds it until it has ended, which is `LATE_ANSWER_S` after its time at the latest.
    """

    def __init__(self, call: Any, under_way: set[asyncio.Task[Any]]) -> None:
        self._call = call
        self._under_way = under_way

    async def __call__(self, request: Any, timeout: float, metadata: tuple[tuple[str, str], ...] = ()) -> Any:
        answering = asyncio.get_running_loop().create_task(self._answer(request, timeout + LATE_ANSWER_S, metadata))
        self._under_way.add(answering)
        answering.add_done_callback(self._ended)
        answered, _ = await asyncio.wait({answering}, timeout=timeout)
        if not answered:
            raise failed_call(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")
        return answering.result()

    async def _answer(self, request: Any, timeout_s: float, metadata: tuple[tuple[str, str], ...]) -> Any:
        return await self._call(request, timeout=timeout_s, metadata=metadata)

    def _ended(self, answering: asyncio.Task[Any]) -> None:
        self._under_way.discard(answering)
        if not answering.cancelled():
            answering.exception()  # seen, even where nobody waits for it any more


def failed_call(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """The error that gRPC raises, for a failure that it did not see."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details)
