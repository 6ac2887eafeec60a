"""The KV service."""

from __future__ import annotations

from leasehold.coord.embedded.engine import Engine
from leasehold.coord.embedded.server import convert
from leasehold.coord.embedded.server.calls import Context, Message, Methods, run, unary
from leasehold.coord.etcd.pb import rpc_pb2


def kv_service(engine: Engine) -> Methods:
    """Method -> handler."""

    async def range_(m: Message, _context: Context) -> Message:
        request = convert.to_range(m)
        result = run(engine, lambda store, _now: store.range(request))
        if engine.unsettled:
            await engine.settled()
        return convert.range_response(result)

    async def put(m: Message, _context: Context) -> Message:
        request = convert.to_put(m)
        result = run(engine, lambda store, _now: store.put(request))
        if engine.unsettled:
            await engine.settled()
        return convert.put_response(result)

    async def delete_range(m: Message, _context: Context) -> Message:
        request = convert.to_delete(m)
        result = run(engine, lambda store, _now: store.delete(request))
        if engine.unsettled:
            await engine.settled()
        return convert.delete_response(result)

    async def txn(m: Message, _context: Context) -> Message:
        request = convert.to_txn(m)
        result = run(engine, lambda store, _now: store.txn(request))
        if engine.unsettled:
            await engine.settled()
        return convert.txn_response(result)

    async def compact(m: Message, _context: Context) -> Message:
        result = run(engine, lambda store, _now: store.compact(m.revision))
        await engine.settled()
        return rpc_pb2.CompactionResponse(header=convert.header(result.header))

    return {
        "Range": unary(rpc_pb2.RangeRequest, range_),
        "Put": unary(rpc_pb2.PutRequest, put),
        "DeleteRange": unary(rpc_pb2.DeleteRangeRequest, delete_range),
        "Txn": unary(rpc_pb2.TxnRequest, txn),
        "Compact": unary(rpc_pb2.CompactionRequest, compact),
    }
