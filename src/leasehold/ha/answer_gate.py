"""Answers wait here until what they show is durable. Pure; shared by the running node and the simulator."""

from __future__ import annotations

import heapq
from enum import Enum
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Verdict(Enum):
    SEND = "send"
    UNKNOWN = "unknown"  # decided, but never proven durable in time or in this epoch: say "outcome unknown"


class Server(Protocol):
    """What the gate asks of a node's machine."""

    @property
    def durable_n(self) -> int: ...

    @property
    def acked_n(self) -> int: ...

    def may_serve(self, now_ms: int) -> bool: ...


class AnswerGate(Generic[T]):
    """Holds answers by the number of the record that must be durable first.

    Law: an answer leaves only while the node may serve *at the moment of leaving*, and only when its record is
    durable (`durable_n` for what hands out space, `acked_n`, which `buffered` and `async` raise, for the rest).
    """

    __slots__ = ("_deadline_ms", "_order", "_space", "_waiting")

    def __init__(self, call_deadline_ms: int) -> None:
        self._deadline_ms = call_deadline_ms
        self._order = 0
        self._waiting: list[tuple[int, int, int, T]] = []  # (after, order, give up at, token)
        self._space: list[tuple[int, int, int, T]] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._space)

    def hold(self, now_ms: int, after: int, token: T, *, hands_out_space: bool = False) -> None:
        """Keep `token` until record `after` is durable."""
        self._order += 1
        entry = (after, self._order, now_ms + self._deadline_ms, token)
        heapq.heappush(self._space if hands_out_space else self._waiting, entry)

    def release(self, now_ms: int, server: Server) -> list[tuple[T, Verdict]]:
        """What may leave now, in the order of the numbers. Call it whenever `durable_n` or `acked_n` has moved."""
        out: list[tuple[T, Verdict]] = []
        for heap, n in ((self._waiting, server.acked_n), (self._space, server.durable_n)):
            if not heap or heap[0][0] > n:
                continue
            if not server.may_serve(now_ms):
                continue  # the right may come back (the store was away): until then the answers wait
            while heap and heap[0][0] <= n:
                out.append((heapq.heappop(heap)[3], Verdict.SEND))
        return out

    def overdue(self, now_ms: int) -> list[tuple[T, Verdict]]:
        """What has waited longer than a caller does. Call it about once a second."""
        out: list[tuple[T, Verdict]] = []
        for heap in (self._waiting, self._space):
            late = [entry for entry in heap if entry[2] <= now_ms]
            if late:
                heap[:] = [entry for entry in heap if entry[2] > now_ms]
                heapq.heapify(heap)
                out.extend((entry[3], Verdict.UNKNOWN) for entry in sorted(late, key=lambda e: e[1]))
        return out

    def drop_all(self) -> list[tuple[T, Verdict]]:
        """The node has stepped down: nothing held may leave as an answer any more."""
        entries = sorted(self._waiting + self._space, key=lambda e: e[1])
        self._waiting.clear()
        self._space.clear()
        return [(entry[3], Verdict.UNKNOWN) for entry in entries]
