"""The interface to a coordination store. All packages above this one are written against `Coord`.

`leasehold.connect(url)` returns a `Coord`. Every call has a deadline (`timeout_s`; None: the client's default).
Failures are the same on every back end:

- `leasehold.mvcc.errors.StoreError` and its subclasses: the store answered with an error and changed nothing;
- `Unavailable`: no endpoint answered in time, nothing was changed, and a retry is safe;
- `UnknownOutcome`: the write was sent and not answered. Reads never raise it: they are retried at another endpoint, or
  raise `Unavailable`.

If a task that waits for a write is cancelled, the outcome of that write is unknown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, overload, runtime_checkable

from leasehold.mvcc.model import (
    CompactResult,
    Compare,
    DeleteRange,
    DeleteResult,
    KeyValue,
    LeaseGrantResult,
    LeaseKeepAliveResult,
    LeaseListResult,
    LeaseRevokeResult,
    LeaseTimeToLiveResult,
    Op,
    OpResult,
    Put,
    PutResult,
    Range,
    RangeResult,
    SortOrder,
    SortTarget,
    Status,
    Txn,
    TxnResult,
    Watch,
    WatchBatch,
    WatchFilter,
)


class WatchStream(Protocol):
    """An async iterator of `WatchBatch`. It resumes after a broken connection without loss or duplicate.

    It raises `Compacted` when events it has not delivered yet were compacted (list again, then watch from there), and
    `SlowConsumer` when its bounded queue is full. `async with` or `close()` ends it.
    """

    async def ready(self, timeout_s: float | None = None) -> int:
        """Wait until the store has created the watch. Returns the first revision that it covers."""
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
    """Renews one lease until closed, on its own thread: a blocked event loop does not delay it.

    Until `deadline_ms`, on the client's clock, the lease cannot have expired: it is the *send* time of the last
    acknowledged renewal plus the TTL in its answer. `lost` is set once the store reports that the lease does not exist.
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
        """Run `op` now. Returns None, without having done anything, if the caller must use `Coord.do`."""
        ...


class Abandonable(Protocol):
    """A request under way."""

    def abandon(self) -> None:
        """Stop waiting: no callback is called any more. The request may still take effect."""
        ...


@runtime_checkable
class Sends(Protocol):
    """A store that can run some requests without a task for each."""

    def send(
        self,
        op: Op,
        timeout_s: float,
        answered: Callable[[OpResult], None],
        unfinished: Callable[[Coroutine[Any, Any, OpResult]], None],
    ) -> Abandonable | None:
        """Send `op`. Exactly one of the callbacks is called, on the loop, after this call has returned.

        `answered` gets the result. If the first attempt fails, `unfinished` gets the rest of the call, which returns or
        raises as `Coord.do` does. Returns None, without having done anything, if the caller must use `Coord.do`.
        """
        ...


class Coord(ABC):
    """A coordination store: the etcd v3 data model.

    A back end implements `do` for operations on keys, `open_watch`, and the calls on leases. The keyword methods `get`,
    `put`, `delete`, `txn` and `watch` are written once, here, on top of them.
    """

    @overload
    def do(self, op: Range, timeout_s: float | None = None) -> Coroutine[Any, Any, RangeResult]: ...

    @overload
    def do(self, op: Put, timeout_s: float | None = None) -> Coroutine[Any, Any, PutResult]: ...

    @overload
    def do(self, op: DeleteRange, timeout_s: float | None = None) -> Coroutine[Any, Any, DeleteResult]: ...

    @overload
    def do(self, op: Txn, timeout_s: float | None = None) -> Coroutine[Any, Any, TxnResult]: ...

    @abstractmethod
    def do(self, op: Op, timeout_s: float | None = None) -> Coroutine[Any, Any, Any]:
        """Run one operation. The type of the result follows from the type of the operation."""

    @abstractmethod
    def open_watch(self, request: Watch) -> WatchStream:
        """Start a watch. Does not wait for the store: `WatchStream.ready` does."""

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
    ) -> RangeResult:
        """Read a key, or the range up to `range_end` (`prefix_end(key)` for a prefix)."""
        request = Range(
            key,
            range_end,
            limit,
            revision,
            sort_order,
            sort_target,
            serializable,
            keys_only,
            count_only,
            min_mod_revision,
            max_mod_revision,
            min_create_revision,
            max_create_revision,
        )
        return await self.do(request, timeout_s)

    async def get_one(self, key: bytes, *, timeout_s: float | None = None) -> KeyValue | None:
        """The key's current value, or None."""
        kvs = (await self.do(Range(key), timeout_s)).kvs
        return kvs[0] if kvs else None

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
    ) -> PutResult:
        """Write a key."""
        return await self.do(Put(key, value, lease, prev_kv, ignore_value, ignore_lease), timeout_s)

    async def delete(
        self, key: bytes, range_end: bytes = b"", *, prev_kv: bool = False, timeout_s: float | None = None
    ) -> DeleteResult:
        """Delete a key, or the range up to `range_end`."""
        return await self.do(DeleteRange(key, range_end, prev_kv), timeout_s)

    async def txn(
        self,
        compare: Sequence[Compare] = (),
        success: Sequence[Op] = (),
        failure: Sequence[Op] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """Run `success` if all of `compare` hold, else `failure`, atomically."""
        return await self.do(Txn(tuple(compare), tuple(success), tuple(failure)), timeout_s)

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
    ) -> WatchStream:
        """Watch a key, or the range up to `range_end`, from `start_revision` (0: from now on)."""
        return self.open_watch(
            Watch(key, range_end, start_revision, prev_kv, progress_notify, fragment, tuple(filters))
        )

    @abstractmethod
    async def compact(self, revision: int, *, physical: bool = False, timeout_s: float | None = None) -> CompactResult:
        """Delete history before `revision`. With `physical`, wait until it is deleted from the disk."""

    @abstractmethod
    async def lease_grant(
        self, ttl_s: int, lease_id: int = 0, *, timeout_s: float | None = None
    ) -> LeaseGrantResult: ...

    @abstractmethod
    async def lease_revoke(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseRevokeResult: ...

    @abstractmethod
    async def lease_keep_alive_once(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseKeepAliveResult: ...

    @abstractmethod
    async def lease_time_to_live(
        self, lease_id: int, *, keys: bool = False, timeout_s: float | None = None
    ) -> LeaseTimeToLiveResult: ...

    @abstractmethod
    async def leases(self, *, timeout_s: float | None = None) -> LeaseListResult: ...

    @abstractmethod
    def keep_alive(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> KeepAlive:
        """Start renewing `lease_id`, every third of its TTL.

        `granted_sent_ms` is when its grant (or last renewal) was sent, on `now_ms()`.
        """

    @abstractmethod
    async def status(self, *, timeout_s: float | None = None) -> Status: ...

    @abstractmethod
    def now_ms(self) -> int:
        """The clock of this client's deadlines (`CLOCK_BOOTTIME`, or a test's)."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
