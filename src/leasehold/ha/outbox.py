"""The outbox: it decides whether an answer may be sent now, when a record is durable, or not at all. Pure.

An answer leaves only

- while the leader lease holds, at the moment of sending (P4): `lease_until_ms`;
- when the record that it waits for is durable. An answer that hands out space waits for `durable_n`, which only the
  store raises (P3). All others wait for `acked_n`, which durability `buffered` and `async` raise earlier (P1).

Answers whose record does not become durable in time end as "outcome unknown". The running node, the simulator and a
server without a journal (`always_open`) use the same class.
"""

from __future__ import annotations

import heapq
from typing import Any

from leasehold.index.replies import Reply, SpaceHandedOut
from leasehold.wire.answers import Released, Waiting

FOREVER = 1 << 62
NEVER_MS = -FOREVER


class Outbox:
    """Answers that wait, in the order of their records. The machine calls `update` after every event."""

    __slots__ = (
        "_arrival",
        "_deadline_ms",
        "_space",
        "_views",
        "acked_n",
        "durable_n",
        "lease_until_ms",
        "now_ms",
        "unknown_count",
    )

    def __init__(self, call_deadline_ms: int) -> None:
        self._deadline_ms = call_deadline_ms
        self._arrival = 0
        self._views: list[Waiting] = []  # heaps: answers that hand out no space, and answers that do
        self._space: list[Waiting] = []
        self.durable_n = 0
        self.acked_n = 0
        self.lease_until_ms = NEVER_MS
        self.now_ms = 0  # the time of the present event or burst of requests
        self.unknown_count = 0  # answers that ended as "outcome unknown"

    @classmethod
    def always_open(cls) -> Outbox:
        """For a server without a journal: every record counts as durable, and the lease never ends."""
        outbox = cls(FOREVER)
        outbox.durable_n = outbox.acked_n = outbox.lease_until_ms = FOREVER
        return outbox

    def update(self, durable_n: int, acked_n: int, lease_until_ms: int) -> None:
        """Records up to `durable_n` are durable, those up to `acked_n` may be acknowledged; the leader lease ends."""
        self.durable_n, self.acked_n, self.lease_until_ms = durable_n, acked_n, lease_until_ms

    def may_serve(self, now_ms: int) -> bool:
        """Whether the leader lease holds. Commands and answers of the present burst count from this time."""
        self.now_ms = now_ms
        return now_ms < self.lease_until_ms

    @property
    def waiting(self) -> int:
        """How many answers wait. (Not `__len__`: an empty outbox must never count as none.)"""
        return len(self._views) + len(self._space)

    def submit(self, reply: Reply, frame: bytes) -> Released | Waiting:
        """The frame itself if it may be sent now, else a `Waiting` that `release` returns later."""
        after = reply.after
        if after <= self.durable_n or (after <= self.acked_n and type(reply) is not SpaceHandedOut):
            return frame  # type: ignore[return-value] # `Released(frame)` is a call for every answer, and only this
        return self.enqueue(reply, frame, len(frame))

    def enqueue(self, reply: Reply, payload: Any, kept_bytes: int = 0) -> Waiting:
        """Keep `payload` until the record of `reply` is durable."""
        self._arrival += 1
        waiting = Waiting(reply.after, self._arrival, self.now_ms + self._deadline_ms, payload, kept_bytes)
        heapq.heappush(self._space if type(reply) is SpaceHandedOut else self._views, waiting)
        return waiting

    def release(self, now_ms: int) -> list[Waiting]:
        """The answers that may be sent now, in the order of their records.

        Without the lease none may: it may return (the store was unavailable), and until then they wait.
        """
        released: list[Waiting] = []
        if now_ms < self.lease_until_ms:
            for heap, n in ((self._views, self.acked_n), (self._space, self.durable_n)):
                while heap and heap[0].after <= n:
                    released.append(heapq.heappop(heap))
        return released

    def overdue(self, now_ms: int) -> list[Waiting]:
        """Answers that have waited longer than their callers do: their outcome is unknown. Call it once a second."""
        out: list[Waiting] = []
        for heap in (self._views, self._space):
            late = [one for one in heap if one.give_up_ms <= now_ms]
            if late:
                heap[:] = [one for one in heap if one.give_up_ms > now_ms]
                heapq.heapify(heap)
                out.extend(sorted(late, key=lambda one: one.arrival))
        self.unknown_count += len(out)
        return out

    def drop_all(self) -> list[Waiting]:
        """The node has stepped down: nothing that waits may be sent as an answer."""
        dropped = sorted(self._views + self._space, key=lambda one: one.arrival)
        self._views.clear()
        self._space.clear()
        self.unknown_count += len(dropped)
        return dropped
