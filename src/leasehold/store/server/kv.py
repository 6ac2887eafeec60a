"""The KV service."""

from __future__ import annotations

from leasehold.etcd.pb import rpc_pb2
from leasehold.mvcc.model import CompactResult
from leasehold.mvcc.store import Store
from leasehold.store.engine import Engine
from leasehold.store.server import convert
from leasehold.store.server.dispatch import Methods, direct, run
from leasehold.store.server.http2.streams import Message


def kv_service(engine: Engine) -> Methods:
    """Method -> handler."""

    def range_(m: Message) -> Message:
        request = convert.to_range(m)
        result = run(engine, lambda store, _now: store.range(request))
        return convert.range_response(result)

    def put(m: Message) -> Message:
        request = convert.to_put(m)
        result = run(engine, lambda store, _now: store.put(request))
        return convert.put_response(result)

    def delete_range(m: Message) -> Message:
        request = convert.to_delete(m)
        result = run(engine, lambda store, _now: store.delete(request))
        return convert.delete_response(result)

    def txn(m: Message) -> Message:
        request = convert.to_txn(m)
        result = run(engine, lambda store, _now: store.txn(request))
        return convert.txn_response(result)

    def compact(m: Message) -> Message:
        def compact_intact(store: Store) -> CompactResult:
            store.alarms.check_intact()
            return store.compact(m.revision)

        result = run(engine, lambda store, _now: compact_intact(store))
        return rpc_pb2.CompactionResponse(header=convert.header(result.header))

    return {
        "Range": direct(engine, rpc_pb2.RangeRequest, range_),
        "Put": direct(engine, rpc_pb2.PutRequest, put),
        "DeleteRange": direct(engine, rpc_pb2.DeleteRangeRequest, delete_range),
        "Txn": direct(engine, rpc_pb2.TxnRequest, txn),
        "Compact": direct(engine, rpc_pb2.CompactionRequest, compact),
    }
