"""The face that all back ends share: keyword arguments become the data model's requests.

A back end derives from `CoordFace` and answers requests (`do_range`, `do_put`, ...); leases and watches it implements
by itself, as `leasehold.coord.api.Coord` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from leasehold.mvcc.model import (
    Compare,
    DeleteRange,
    DeleteResult,
    KeyValue,
    Op,
    Put,
    PutResult,
    Range,
    RangeResult,
    SortOrder,
    SortTarget,
    Txn,
    TxnResult,
)
from leasehold.runtime.closing import AsyncClosing


class CoordFace(ABC, AsyncClosing):
    """The key-value half of `Coord`, on top of four methods that take the data model's requests."""

    @abstractmethod
    async def do_range(self, request: Range, timeout_s: float | None) -> RangeResult: ...

    @abstractmethod
    async def do_put(self, request: Put, timeout_s: float | None) -> PutResult: ...

    @abstractmethod
    async def do_delete(self, request: DeleteRange, timeout_s: float | None) -> DeleteResult: ...

    @abstractmethod
    async def do_txn(self, request: Txn, timeout_s: float | None) -> TxnResult: ...

    @abstractmethod
    async def close(self) -> None: ...

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
        return await self.do_range(request, timeout_s)

    async def get_one(self, key: bytes, *, timeout_s: float | None = None) -> KeyValue | None:
        """The key's current value, or None."""
        kvs = (await self.do_range(Range(key), timeout_s)).kvs
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
        return await self.do_put(Put(key, value, lease, prev_kv, ignore_value, ignore_lease), timeout_s)

    async def delete(
        self, key: bytes, range_end: bytes = b"", *, prev_kv: bool = False, timeout_s: float | None = None
    ) -> DeleteResult:
        """Delete a key, or the range up to `range_end`."""
        return await self.do_delete(DeleteRange(key, range_end, prev_kv), timeout_s)

    async def txn(
        self,
        compare: Sequence[Compare] = (),
        success: Sequence[Op] = (),
        failure: Sequence[Op] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """If all of `compare` hold do `success`, else `failure`, in one step."""
        return await self.do_txn(Txn(tuple(compare), tuple(success), tuple(failure)), timeout_s)
