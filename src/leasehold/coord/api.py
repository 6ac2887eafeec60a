"""The one interface to a coordination store. Everything above this room is written against it.

`Coord` is what `leasehold.connect(url)` gives. Every call has a deadline (`timeout_s`; the client's default where
None). Failures, on every back end alike:

- `leasehold.mvcc.errors.StoreError` and its kinds: the store answered with an error, nothing was changed;
- `Unavailable`: no endpoint could be asked in time, nothing was changed, repeating is safe;
- `UnknownOutcome`: it was sent and not answered. Reads are never in doubt: they are repeated elsewhere, or end
  `Unavailable`.

Cancellation of an awaiting task may leave a write with an unknown outcome, as a lost answer does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from leasehold.mvcc.model import (
    CompactResult,
    Compare,
    DeleteResult,
    KeyValue,
    LeaseGrantResult,
    LeaseKeepAliveResult,
    LeaseListResult,
    LeaseRevokeResult,
    LeaseTimeToLiveResult,
    Op,
    OpResult,
    PutResult,
    RangeResult,
    SortOrder,
    SortTarget,
    Status,
    TxnResult,
    WatchBatch,
    WatchFilter,
)


class WatchStream(Protocol):
    """An async iterator of `WatchBatch`, which goes on over broken connections without loss or duplicate.

    It raises `Compacted` when what it still has to tell has been compacted away (list again, watch from there),
    and `SlowConsumer` when its reader has let the bounded queue run full. `async with` or `close()` ends it.
    """

    async def ready(self, timeout_s: float | None = None) -> int:
        """Wait until the store has taken the watch; the revision from which it is complete."""
        ...

    async def request_progress(self) -> None: ...

    async def close(self) -> None: ...

    def __aiter__(self) -> AsyncIterator[WatchBatch]: ...

    async def __anext__(self) -> WatchBatch: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class KeepAlive(Protocol):
    """Renews one lease until closed, from a thread of its own: a blocked event loop does not delay it.

    `deadline_ms` is the end of what is certain, on the client's `clock`: *send* time of the last acknowledged
    renewal plus the TTL that it answered. `lost` is set once the store said that the lease is gone.
    """

    @property
    def lease_id(self) -> int: ...

    @property
    def ttl_s(self) -> int: ...

    @property
    def deadline_ms(self) -> int: ...

    @property
    def lost(self) -> bool: ...

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` (from any thread) whenever `deadline_ms` or `lost` has changed."""
        ...

    def close(self) -> None:
        """Stop renewing. Does not revoke. Never blocks; may be called from any thread, more than once."""
        ...


@runtime_checkable
class Immediate(Protocol):
    """A store that can answer some requests without waiting: one in this process's memory."""

    def immediately(self, op: Op) -> OpResult | None:
        """Do `op` now. None: nothing was done, it has to be asked the usual way."""
        ...


class Coord(Protocol):
    """A coordination store: the etcd v3 data model."""

    async def get(
        self,
        key: bytes,
        range_end: bytes = b"",
        *,
        limit: int = 0,
        revision: int = 0,
        sort_order: SortOrder = SortOrder.NONE,
        sort_target: SortTarget = SortTarget.KEY,
        serializable: bool = False,
        keys_only: bool = False,
        count_only: bool = False,
        min_mod_revision: int = 0,
        max_mod_revision: int = 0,
        min_create_revision: int = 0,
        max_create_revision: int = 0,
        timeout_s: float | None = None,
    ) -> RangeResult: ...

    async def get_one(self, key: bytes, *, timeout_s: float | None = None) -> KeyValue | None:
        """The key's current value, or None."""
        ...

    async def put(
        self,
        key: bytes,
        value: bytes = b"",
        *,
        lease: int = 0,
        prev_kv: bool = False,
        ignore_value: bool = False,
        ignore_lease: bool = False,
        timeout_s: float | None = None,
    ) -> PutResult: ...

    async def delete(
        self, key: bytes, range_end: bytes = b"", *, prev_kv: bool = False, timeout_s: float | None = None
    ) -> DeleteResult: ...

    async def txn(
        self,
        compare: Sequence[Compare] = (),
        success: Sequence[Op] = (),
        failure: Sequence[Op] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult: ...

    async def compact(
        self, revision: int, *, physical: bool = False, timeout_s: float | None = None
    ) -> CompactResult: ...

    async def lease_grant(
        self, ttl_s: int, lease_id: int = 0, *, timeout_s: float | None = None
    ) -> LeaseGrantResult: ...

    async def lease_revoke(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseRevokeResult: ...

    async def lease_keep_alive_once(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseKeepAliveResult: ...

    async def lease_time_to_live(
        self, lease_id: int, *, keys: bool = False, timeout_s: float | None = None
    ) -> LeaseTimeToLiveResult: ...

    async def leases(self, *, timeout_s: float | None = None) -> LeaseListResult: ...

    def keep_alive(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> KeepAlive:
        """Start renewing `lease_id`, every third of its TTL.

        `granted_sent_ms` is when its grant (or last renewal) was sent, on `now_ms()`.
        """
        ...

    def watch(
        self,
        key: bytes,
        range_end: bytes = b"",
        *,
        start_revision: int = 0,
        prev_kv: bool = False,
        progress_notify: bool = False,
        fragment: bool = False,
        filters: Sequence[WatchFilter] = (),
    ) -> WatchStream: ...

    async def status(self, *, timeout_s: float | None = None) -> Status: ...

    def now_ms(self) -> int:
        """The clock on which this client's deadlines count (`CLOCK_BOOTTIME`, or a test's)."""
        ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
