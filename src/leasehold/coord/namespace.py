"""A key prefix of a store as a store: requests get the prefix added, and results get it removed.

Works on any back end. Revisions, leases and their ids are those of the whole store.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from leasehold.base.invariants import ensure
from leasehold.coord.api import Coord, KeepAlive, WatchStream
from leasehold.mvcc.errors import BadRequest
from leasehold.mvcc.model import (
    FROM_KEY,
    CompactResult,
    Compare,
    DeleteRange,
    DeleteResult,
    Event,
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
    Status,
    Txn,
    TxnResult,
    Watch,
    WatchBatch,
    prefix_end,
)

_Ranged = TypeVar("_Ranged", Range, DeleteRange, Compare)


class _Translator:
    """Adds the prefix to keys and requests, and removes it from results."""

    def __init__(self, prefix: bytes) -> None:
        ensure(prefix, "a namespace has a prefix")
        self._prefix = prefix
        self._end = prefix_end(prefix)

    def key(self, key: bytes) -> bytes:
        if not key:
            # With the prefix it would not be empty, and the store would accept it.
            raise BadRequest("etcdserver: key is not provided")
        return self._prefix + key

    def end(self, range_end: bytes) -> bytes:
        """The end of a range. An open range ends at the end of the namespace."""
        if not range_end:
            return b""
        return self._end if range_end == FROM_KEY else self._prefix + range_end

    def owns(self, key: bytes) -> bool:
        return key.startswith(self._prefix)

    def strip(self, key: bytes) -> bytes:
        return key[len(self._prefix) :]

    def ranged(self, request: _Ranged) -> _Ranged:
        return msgspec.structs.replace(request, key=self.key(request.key), range_end=self.end(request.range_end))

    def op(self, op: Op) -> Op:
        if isinstance(op, Put):
            return msgspec.structs.replace(op, key=self.key(op.key))
        if isinstance(op, Txn):
            return self.txn(op)
        key, end = self.key(op.key), self.end(op.range_end)
        if isinstance(op, Range):
            return msgspec.structs.replace(op, key=key, range_end=end)
        return DeleteRange(key, end, op.prev_kv)

    def txn(self, txn: Txn) -> Txn:
        return Txn(
            tuple(map(self.ranged, txn.compare)),
            tuple(map(self.op, txn.success)),
            tuple(map(self.op, txn.failure)),
        )

    def kv(self, kv: KeyValue) -> KeyValue:
        return msgspec.structs.replace(kv, key=self.strip(kv.key))

    def event(self, event: Event) -> Event:
        before = self.kv(event.prev_kv) if event.prev_kv else None
        return Event(event.type, self.kv(event.kv), before)

    def range_result(self, result: RangeResult) -> RangeResult:
        return msgspec.structs.replace(result, kvs=tuple(map(self.kv, result.kvs)))

    def put_result(self, result: PutResult) -> PutResult:
        return PutResult(result.header, self.kv(result.prev_kv)) if result.prev_kv else result

    def delete_result(self, result: DeleteResult) -> DeleteResult:
        return msgspec.structs.replace(result, prev_kvs=tuple(map(self.kv, result.prev_kvs)))

    def txn_result(self, result: TxnResult) -> TxnResult:
        return msgspec.structs.replace(result, results=tuple(map(self.result, result.results)))

    def result(self, result: OpResult) -> OpResult:
        if isinstance(result, RangeResult):
            return self.range_result(result)
        if isinstance(result, PutResult):
            return self.put_result(result)
        if isinstance(result, DeleteResult):
            return self.delete_result(result)
        return self.txn_result(result)


class Namespaced(Coord):
    """`coord`, seen through a key prefix."""

    def __init__(self, coord: Coord, prefix: bytes) -> None:
        self._coord = coord
        self._translate = _Translator(prefix)

    async def do(self, op: Op, timeout_s: float | None = None) -> Any:
        return self._translate.result(await self._coord.do(self._translate.op(op), timeout_s))

    def open_watch(self, request: Watch) -> WatchStream:
        # etcd takes an empty key of a watch as the lowest key.
        key, end = self._translate.key(request.key or b"\0"), self._translate.end(request.range_end)
        stream = self._coord.open_watch(msgspec.structs.replace(request, key=key, range_end=end))
        return _NamespacedWatch(stream, self._translate)

    async def compact(self, revision: int, *, physical: bool = False, timeout_s: float | None = None) -> CompactResult:
        return await self._coord.compact(revision, physical=physical, timeout_s=timeout_s)

    async def lease_grant(self, ttl_s: int, lease_id: int = 0, *, timeout_s: float | None = None) -> LeaseGrantResult:
        return await self._coord.lease_grant(ttl_s, lease_id, timeout_s=timeout_s)

    async def lease_revoke(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseRevokeResult:
        return await self._coord.lease_revoke(lease_id, timeout_s=timeout_s)

    async def lease_keep_alive_once(self, lease_id: int, *, timeout_s: float | None = None) -> LeaseKeepAliveResult:
        return await self._coord.lease_keep_alive_once(lease_id, timeout_s=timeout_s)

    async def lease_time_to_live(
        self, lease_id: int, *, keys: bool = False, timeout_s: float | None = None
    ) -> LeaseTimeToLiveResult:
        """Only keys of this namespace are listed."""
        result = await self._coord.lease_time_to_live(lease_id, keys=keys, timeout_s=timeout_s)
        translate = self._translate
        own = tuple(translate.strip(key) for key in result.keys if translate.owns(key))
        return msgspec.structs.replace(result, keys=own)

    async def leases(self, *, timeout_s: float | None = None) -> LeaseListResult:
        return await self._coord.leases(timeout_s=timeout_s)

    def keep_alive(self, lease_id: int, ttl_s: int, granted_sent_ms: int) -> KeepAlive:
        return self._coord.keep_alive(lease_id, ttl_s, granted_sent_ms)

    async def status(self, *, timeout_s: float | None = None) -> Status:
        return await self._coord.status(timeout_s=timeout_s)

    def now_ms(self) -> int:
        return self._coord.now_ms()

    async def close(self) -> None:
        await self._coord.close()


class _NamespacedWatch:
    """A watch that removes the prefix from its events."""

    def __init__(self, stream: WatchStream, translate: _Translator) -> None:
        self._stream = stream
        self._translate = translate
        self.ready = stream.ready
        self.request_progress = stream.request_progress
        self.close = stream.close

    def __aiter__(self) -> _NamespacedWatch:
        return self

    async def __anext__(self) -> WatchBatch:
        batch = await self._stream.__anext__()
        return WatchBatch(batch.header, tuple(map(self._translate.event, batch.events)))

    async def __aenter__(self) -> _NamespacedWatch:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.close()
