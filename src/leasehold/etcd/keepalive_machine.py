"""When to renew which lease, and until when it is certain to exist: pure.

A lease is renewed every third of its TTL. Its deadline counts from when the acknowledged renewal was *sent*: the
store started the TTL no earlier than that, so the lease cannot have expired before the deadline.
"""

from __future__ import annotations

import heapq

RENEWALS_PER_TTL = 3
# An unanswered renewal makes its endpoint suspect after a quarter of the shortest TTL, within these bounds.
PATIENCE_MS_MIN, PATIENCE_MS_MAX = 300, 1_000


class LeaseState:
    """One lease: read by its owner from any thread, written only by the machine."""

    __slots__ = ("deadline_ms", "lease_id", "lost", "next_send_ms", "sent_ms", "ttl_s")

    def __init__(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> None:
        self.lease_id = lease_id
        self.ttl_s = ttl_s
        self.deadline_ms = granted_sent_ms + ttl_s * 1_000
        self.next_send_ms = granted_sent_ms + ttl_s * 1_000 // RENEWALS_PER_TTL
        self.sent_ms: int | None = None  # of the renewal that is not answered yet
        self.lost = False


class KeepAliveMachine:
    """All leases of one client. `take_due` returns renewals to send, `answered` takes the answers."""

    def __init__(self) -> None:
        self._leases: dict[int, LeaseState] = {}
        self._due: list[tuple[int, int]] = []  # (when, lease id); an entry counts if it is the lease's next_send_ms
        self._unanswered: dict[int, int] = {}  # lease id -> when its renewal was sent, oldest first

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, state: LeaseState) -> LeaseState:
        """Start renewing. Returns the state to use: the existing one if the lease is being renewed already."""
        known = self._leases.get(state.lease_id)
        if known is not None:
            known.deadline_ms = max(known.deadline_ms, state.deadline_ms)
            return known
        self._leases[state.lease_id] = state
        heapq.heappush(self._due, (state.next_send_ms, state.lease_id))
        return state

    def remove(self, state: LeaseState) -> None:
        """Stop renewing."""
        if self._leases.get(state.lease_id) is state:
            del self._leases[state.lease_id]
            self._unanswered.pop(state.lease_id, None)

    def take_due(self, now_ms: int, count_max: int = 1_000) -> list[int]:
        """The leases to renew now. They count as sent."""
        due: list[int] = []
        while self._due and self._due[0][0] <= now_ms and len(due) < count_max:
            when_ms, lease_id = heapq.heappop(self._due)
            state = self._leases.get(lease_id)
            if state is None or state.next_send_ms != when_ms or state.sent_ms is not None:
                continue
            state.sent_ms = now_ms
            self._unanswered[lease_id] = now_ms
            due.append(lease_id)
        return due

    def answered(self, lease_id: int, ttl_s: int) -> LeaseState | None:
        """Record the store's answer. Returns the state if it changed. A TTL of 0 or less: the lease does not exist."""
        state = self._leases.get(lease_id)
        self._unanswered.pop(lease_id, None)
        if state is None or state.sent_ms is None:
            return None
        sent_ms, state.sent_ms = state.sent_ms, None
        if ttl_s <= 0:
            state.lost = True
            del self._leases[lease_id]
            return state
        state.ttl_s = ttl_s
        state.deadline_ms = max(state.deadline_ms, sent_ms + ttl_s * 1_000)
        state.next_send_ms = sent_ms + ttl_s * 1_000 // RENEWALS_PER_TTL
        heapq.heappush(self._due, (state.next_send_ms, lease_id))
        return state

    def connection_lost(self, now_ms: int) -> None:
        """Renewals that were sent will not be answered: all of them are due again."""
        for lease_id in self._unanswered:
            state = self._leases.get(lease_id)
            if state is not None:
                state.sent_ms = None
                state.next_send_ms = now_ms
                heapq.heappush(self._due, (now_ms, lease_id))
        self._unanswered.clear()

    def suspect_at_ms(self) -> int | None:
        """When the endpoint becomes suspect unless it answers before; None if no answer is outstanding."""
        oldest = next(iter(self._unanswered.items()), None)
        if oldest is None:
            return None
        lease_id, sent_ms = oldest
        ttl_ms = self._leases[lease_id].ttl_s * 1_000
        return sent_ms + min(PATIENCE_MS_MAX, max(PATIENCE_MS_MIN, ttl_ms // 4))

    def next_send_ms(self) -> int | None:
        """When the next renewal is due; None if there is nothing to renew."""
        while self._due:
            when_ms, lease_id = self._due[0]
            state = self._leases.get(lease_id)
            if state is not None and state.next_send_ms == when_ms and state.sent_ms is None:
                return when_ms
            heapq.heappop(self._due)
        return None
