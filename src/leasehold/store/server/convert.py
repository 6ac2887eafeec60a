"""Conversion between protobuf messages and the structs of the data model. On the hot path of every call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leasehold.etcd.pb import kv_pb2, rpc_pb2
from leasehold.mvcc.check import NOTHING
from leasehold.mvcc.errors import BadRequest
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    DeleteResult,
    Event,
    Header,
    KeyValue,
    Op,
    OpResult,
    Put,
    PutResult,
    Range,
    RangeResult,
    SortOrder,
    SortTarget,
    Txn,
    TxnResult,
)

# Message types are generated without annotations that mypy could use here.
Message = Any

_SORT_ORDERS = tuple(SortOrder)
_SORT_TARGETS = tuple(SortTarget)
_RESULTS = tuple(CompareResult)
_TARGETS = tuple(CompareTarget)
_EVENT_TYPES = (kv_pb2.Event.PUT, kv_pb2.Event.DELETE)
# The field of the union that belongs to each target
_OPERANDS = {
    CompareTarget.VERSION: "version",
    CompareTarget.CREATE: "create_revision",
    CompareTarget.MOD: "mod_revision",
    CompareTarget.VALUE: "value",
    CompareTarget.LEASE: "lease",
}


def to_range(m: Message) -> Range:
    if not 0 <= m.sort_order < len(_SORT_ORDERS) or not 0 <= m.sort_target < len(_SORT_TARGETS):
        raise BadRequest("etcdserver: invalid sort option")
    return Range(
        m.key,
        m.range_end,
        m.limit,
        m.revision,
        _SORT_ORDERS[m.sort_order],
        _SORT_TARGETS[m.sort_target],
        m.serializable,
        m.keys_only,
        m.count_only,
        m.min_mod_revision,
        m.max_mod_revision,
        m.min_create_revision,
        m.max_create_revision,
    )


def to_put(m: Message) -> Put:
    return Put(m.key, m.value, m.lease, m.prev_kv, m.ignore_value, m.ignore_lease)


def to_delete(m: Message) -> DeleteRange:
    return DeleteRange(m.key, m.range_end, m.prev_kv)


def to_compare(m: Message) -> Compare:
    if not 0 <= m.result < len(_RESULTS) or not 0 <= m.target < len(_TARGETS):
        raise BadRequest("etcdserver: invalid compare in txn request")
    target = _TARGETS[m.target]
    # An operand for another target is ignored: reading the target's own field gives 0 or b"".
    return Compare(m.key, target, _RESULTS[m.result], getattr(m, _OPERANDS[target]), m.range_end)


def to_txn(m: Message) -> Txn:
    return Txn(tuple(map(to_compare, m.compare)), tuple(map(to_op, m.success)), tuple(map(to_op, m.failure)))


def to_op(m: Message) -> Op:
    kind = m.WhichOneof("request")
    if kind == "request_put":
        return to_put(m.request_put)
    if kind == "request_range":
        return to_range(m.request_range)
    if kind == "request_delete_range":
        return to_delete(m.request_delete_range)
    if kind == "request_txn":
        return to_txn(m.request_txn)
    return NOTHING


def header(h: Header) -> Message:
    return rpc_pb2.ResponseHeader(
        cluster_id=h.cluster_id, member_id=h.member_id, revision=h.revision, raft_term=h.raft_term
    )


def key_value(kv: KeyValue) -> Message:
    return kv_pb2.KeyValue(
        key=kv.key,
        create_revision=kv.create_revision,
        mod_revision=kv.mod_revision,
        version=kv.version,
        value=kv.value,
        lease=kv.lease,
    )


def key_values(kvs: Iterable[KeyValue]) -> list[Message]:
    return [key_value(kv) for kv in kvs]


def range_response(result: RangeResult) -> Message:
    return rpc_pb2.RangeResponse(
        header=header(result.header), kvs=key_values(result.kvs), more=result.more, count=result.count
    )


def put_response(result: PutResult) -> Message:
    if result.prev_kv is None:
        return rpc_pb2.PutResponse(header=header(result.header))
    return rpc_pb2.PutResponse(header=header(result.header), prev_kv=key_value(result.prev_kv))


def delete_response(result: DeleteResult) -> Message:
    return rpc_pb2.DeleteRangeResponse(
        header=header(result.header), deleted=result.deleted, prev_kvs=key_values(result.prev_kvs)
    )


def txn_response(result: TxnResult) -> Message:
    return rpc_pb2.TxnResponse(
        header=header(result.header), succeeded=result.succeeded, responses=[_op_response(r) for r in result.results]
    )


def _op_response(result: OpResult) -> Message:
    if isinstance(result, PutResult):
        return rpc_pb2.ResponseOp(response_put=put_response(result))
    if isinstance(result, RangeResult):
        return rpc_pb2.ResponseOp(response_range=range_response(result))
    if isinstance(result, DeleteResult):
        return rpc_pb2.ResponseOp(response_delete_range=delete_response(result))
    return rpc_pb2.ResponseOp(response_txn=txn_response(result))


def event(e: Event) -> Message:
    if e.prev_kv is None:
        return kv_pb2.Event(type=_EVENT_TYPES[e.type], kv=key_value(e.kv))
    return kv_pb2.Event(type=_EVENT_TYPES[e.type], kv=key_value(e.kv), prev_kv=key_value(e.prev_kv))
