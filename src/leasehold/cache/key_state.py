"""The authority's state of one key, and of the requests that wait for it. Pure.

Invariants of a key:
- a write is pending only while the value is known, and nothing is loaded meanwhile;
- readers wait only for a load;
- clients wait for a refill only while a write is pending;
- a queued write waits for the pending write or for a load.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from leasehold.base.invariants import ensure
from leasehold.cache.model import ABSENT, Item, Version, Write
from leasehold.leases.adaptive import Rates

FOREVER_MS: Final = 2**62
_STORE_RETRY_MS: Final = (50, 200, 1_000)


class WriteRequest:
    """A client's write, its deadline, and whether the client wants a lease on the value it writes."""

    __slots__ = ("client", "deadline_ms", "wants_lease", "write")

    def __init__(self, client: str, write: Write, deadline_ms: int) -> None:
        self.client = client
        self.write = write
        self.deadline_ms = deadline_ms
        self.wants_lease = write.hits is not None

    def decline_lease(self) -> None:
        self.wants_lease = False


class PendingWrite:
    """The one write of a key that is in progress.

    `leases_end_ms` is fixed when it begins. `unacked` are the holders that have not acknowledged the callback.
    With `untracked` acknowledgements are not enough: a lease may be out whose holder is not known by name.
    `token` is set while a store is in flight; `outcome_unknown` is set once a store was not answered.
    """

    __slots__ = (
        "attempts",
        "leases_end_ms",
        "outcome_unknown",
        "request",
        "retry_ms",
        "ticket",
        "token",
        "unacked",
        "untracked",
    )

    def __init__(
        self, request: WriteRequest, leases_end_ms: int, ticket: Version, unacked: set[str], untracked: bool
    ) -> None:
        self.request = request
        self.leases_end_ms = leases_end_ms
        self.ticket = ticket
        self.unacked = unacked
        self.untracked = untracked
        self.token: Version | None = None
        self.outcome_unknown = False
        self.attempts = 0
        self.retry_ms = 0

    def may_store(self, now_ms: int) -> bool:
        """Whether no lease on the old value can be valid any more, and no retry has to be waited for."""
        acknowledged = self.request.write.mode == "callback" and not self.unacked and not self.untracked
        return now_ms >= self.retry_ms and (acknowledged or now_ms >= self.leases_end_ms)

    def has_expired(self, now_ms: int) -> bool:
        """Whether its time ran out while leases were out. Once the value may be stored, there is no way back."""
        return self.request.deadline_ms <= now_ms < self.leases_end_ms and not self.maybe_stored()

    def maybe_stored(self) -> bool:
        """Whether the new value may already be in the store, where a successor would find it."""
        return self.outcome_unknown or self.token is not None

    def acknowledge(self, client: str) -> None:
        self.unacked.discard(client)

    def start_store(self, token: Version) -> None:
        self.token = token

    def store_unknown(self, now_ms: int) -> None:
        """The store did not answer: try again after a pause, under a newer token."""
        self.token = None
        self.outcome_unknown = True
        self.retry_ms = now_ms + _STORE_RETRY_MS[min(self.attempts, len(_STORE_RETRY_MS) - 1)]
        self.attempts += 1

    def due_ms(self) -> int:
        """When it may be stored or its time has run out. While a store is in flight, only the answer matters."""
        if self.token is not None:
            return FOREVER_MS
        return self.retry_ms if self.outcome_unknown else min(self.leases_end_ms, self.request.deadline_ms)


class PendingRead:
    """The answer to one request for several keys, complete when every key's value is known."""

    __slots__ = ("_items", "client", "missing", "seq")

    def __init__(self, client: str, seq: int, keys: int) -> None:
        self.client = client
        self.seq = seq
        self.missing = keys
        self._items: list[Item | None] = [None] * keys

    def put(self, index: int, item: Item) -> None:
        ensure(self._items[index] is None, "a key is answered once", item.key)
        self._items[index] = item
        self.missing -= 1

    def items(self) -> tuple[Item, ...]:
        return tuple(item for item in self._items if item is not None)


class KeyState:
    """One key: its value if known, the readers that wait for a load, the pending write, and the queue behind it."""

    __slots__ = (
        "alarm_ms",
        "key",
        "known",
        "loading",
        "pending",
        "queue",
        "rates",
        "readers",
        "refills",
        "value",
        "version",
    )

    def __init__(self, key: bytes, rates: Rates) -> None:
        self.key = key
        self.known = False
        self.value: bytes | None = None
        self.version: Version = ABSENT
        self.loading = False
        self.readers: list[tuple[PendingRead, int]] = []
        self.refills: dict[str, int] = {}  # clients that want the new value, each with the request for it
        self.pending: PendingWrite | None = None
        self.queue: deque[WriteRequest] = deque()
        self.rates = rates
        self.alarm_ms = FOREVER_MS

    # --- loading ---

    def start_load(self) -> None:
        self.loading = True

    def finish_load(self, value: bytes | None, version: Version) -> None:
        ensure(self.pending is None, "nothing is loaded while a write is pending", self.key)
        self.loading = False
        self.known, self.value, self.version = True, value, version

    def wait_for_load(self, read: PendingRead, index: int) -> None:
        self.readers.append((read, index))

    def take_readers(self) -> list[tuple[PendingRead, int]]:
        readers, self.readers = self.readers, []
        return readers

    # --- writing ---

    def enqueue(self, request: WriteRequest) -> None:
        self.queue.append(request)

    def dequeue(self) -> WriteRequest:
        return self.queue.popleft()

    def take_expired(self, now_ms: int) -> list[WriteRequest]:
        """Remove and return the queued writes whose deadline has passed."""
        expired = [request for request in self.queue if request.deadline_ms <= now_ms]
        for request in expired:
            self.queue.remove(request)
        return expired

    def begin(self, pending: PendingWrite) -> None:
        self.pending = pending

    def commit(self, value: bytes | None, token: Version) -> None:
        """The pending write is stored under `token`."""
        self.pending = None
        self.value = value
        self.version = ABSENT if value is None else token

    def abandon(self) -> None:
        """The pending write ends without effect."""
        self.pending = None

    # --- refills ---

    def want_refill(self, client: str, seq: int) -> None:
        self.refills[client] = seq

    def cancel_refill(self, client: str) -> None:
        self.refills.pop(client, None)

    def take_refills(self) -> dict[str, int]:
        refills, self.refills = self.refills, {}
        return refills

    # --- alarms ---

    def set_alarm(self, at_ms: int) -> None:
        self.alarm_ms = at_ms

    def clear_alarm(self, at_ms: int) -> bool:
        """Clear the alarm that rang at `at_ms`; False if that one is stale."""
        if self.alarm_ms != at_ms:
            return False
        self.alarm_ms = FOREVER_MS
        return True

    def due_ms(self) -> int:
        """When this key must be looked at again: a write may begin, or its time has run out."""
        due_ms = min((request.deadline_ms for request in self.queue), default=FOREVER_MS)
        return due_ms if self.pending is None else min(due_ms, self.pending.due_ms())

    def idle(self) -> bool:
        return not self.loading and self.pending is None and not self.queue

    def check(self) -> None:
        pending = self.pending is not None
        ensure(not pending or (self.known and not self.loading), "a write is pending on an unknown value", self.key)
        ensure(not self.readers or self.loading, "a reader waits for no load", self.key)
        ensure(not self.refills or pending, "a refill waits for no write", self.key)
        ensure(not self.queue or pending or self.loading, "a write is queued behind nothing", self.key)
