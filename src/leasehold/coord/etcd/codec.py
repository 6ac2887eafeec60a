"""The data model on the wire, as a client needs it: requests out, results in."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.coord.etcd.pb import kv_pb2, rpc_pb2
from leasehold.mvcc.model import (
    Compare,
    CompareTarget,
    DeleteRange,
    DeleteResult,
    Event,
    EventType,
    Header,
    KeyValue,
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
)

_OPERAND = {
    CompareTarget.VERSION: "version",
    CompareTarget.CREATE: "create_revision",
    CompareTarget.MOD: "mod_revision",
    CompareTarget.VALUE: "value",
    CompareTarget.LEASE: "lease",
}
_EVENT_TYPES = (EventType.PUT, EventType.DELETE)


# ---- requests ----


def range_request(request: Range) -> rpc_pb2.RangeRequest:
    message = rpc_pb2.RangeRequest(key=request.key)
    # Most reads are of one key: what has its default need not be set, and setting it costs as much as the rest.
    if request.range_end:
        message.range_end = request.range_end
    if request.limit:
        message.limit = request.limit
    if request.revision:
        message.revision = request.revision
    if request.sort_order or request.sort_target:
        message.sort_order = int(request.sort_order)  # type: ignore[assignment]  # protobuf takes the number
        message.sort_target = int(request.sort_target)  # type: ignore[assignment]  # likewise
    if request.serializable:
        message.serializable = True
    if request.keys_only:
        message.keys_only = True
    if request.count_only:
        message.count_only = True
    if request.min_mod_revision or request.max_mod_revision:
        message.min_mod_revision = request.min_mod_revision
        message.max_mod_revision = request.max_mod_revision
    if request.min_create_revision or request.max_create_revision:
        message.min_create_revision = request.min_create_revision
        message.max_create_revision = request.max_create_revision
    return message


def put_request(request: Put) -> rpc_pb2.PutRequest:
    message = rpc_pb2.PutRequest(key=request.key, value=request.value)
    if request.lease:
        message.lease = request.lease
    if request.prev_kv:
        message.prev_kv = True
    if request.ignore_value:
        message.ignore_value = True
    if request.ignore_lease:
        message.ignore_lease = True
    return message


def delete_request(request: DeleteRange) -> rpc_pb2.DeleteRangeRequest:
    return rpc_pb2.DeleteRangeRequest(key=request.key, range_end=request.range_end, prev_kv=request.prev_kv)


def txn_request(request: Txn) -> rpc_pb2.TxnRequest:
    return rpc_pb2.TxnRequest(
        compare=[compare_message(item) for item in request.compare],
        success=[_op_message(op) for op in request.success],
        failure=[_op_message(op) for op in request.failure],
    )


def compare_message(compare: Compare) -> rpc_pb2.Compare:
    message = rpc_pb2.Compare(
        result=int(compare.result),  # type: ignore[arg-type]  # protobuf takes the number
        target=int(compare.target),  # type: ignore[arg-type]  # likewise
        key=compare.key,
        range_end=compare.range_end,
    )
    setattr(message, _OPERAND[compare.target], compare.operand)
    return message


def _op_message(op: Op) -> rpc_pb2.RequestOp:
    if isinstance(op, Put):
        return rpc_pb2.RequestOp(request_put=put_request(op))
    if isinstance(op, Range):
        return rpc_pb2.RequestOp(request_range=range_request(op))
    if isinstance(op, DeleteRange):
        return rpc_pb2.RequestOp(request_delete_range=delete_request(op))
    return rpc_pb2.RequestOp(request_txn=txn_request(op))


def watch_request(watch: Watch, watch_id: int, start_revision: int) -> rpc_pb2.WatchRequest:
    return rpc_pb2.WatchRequest(
        create_request=rpc_pb2.WatchCreateRequest(
            key=watch.key,
            range_end=watch.range_end,
            start_revision=start_revision,
            progress_notify=watch.progress_notify,
            filters=[int(item) for item in watch.filters],  # type: ignore[misc]  # protobuf takes the numbers
            prev_kv=watch.prev_kv,
            watch_id=watch_id,
            fragment=watch.fragment,
        )
    )


def is_read_only(txn: Txn) -> bool:
    """Whether the transaction writes nothing, whichever way its compares turn out."""
    return all(
        isinstance(op, Range) or (isinstance(op, Txn) and is_read_only(op)) for op in (*txn.success, *txn.failure)
    )


# ---- results ----


def header(message: rpc_pb2.ResponseHeader) -> Header:
    return Header(message.revision, message.cluster_id, message.member_id, message.raft_term)


def key_value(message: kv_pb2.KeyValue) -> KeyValue:
    return KeyValue(
        message.key,
        message.value,
        message.create_revision,
        message.mod_revision,
        message.version,
        message.lease,
    )


def key_values(messages: Iterable[kv_pb2.KeyValue]) -> tuple[KeyValue, ...]:
    return tuple([key_value(message) for message in messages])


def range_result(message: rpc_pb2.RangeResponse) -> RangeResult:
    kvs = message.kvs
    return RangeResult(header(message.header), key_values(kvs) if kvs else (), message.more, message.count)


def put_result(message: rpc_pb2.PutResponse) -> PutResult:
    return PutResult(header(message.header), key_value(message.prev_kv) if message.HasField("prev_kv") else None)


def delete_result(message: rpc_pb2.DeleteRangeResponse) -> DeleteResult:
    return DeleteResult(header(message.header), message.deleted, key_values(message.prev_kvs))


def txn_result(message: rpc_pb2.TxnResponse) -> TxnResult:
    results = tuple([_op_result(item) for item in message.responses])
    return TxnResult(header(message.header), message.succeeded, results)


def _op_result(message: rpc_pb2.ResponseOp) -> OpResult:
    kind = message.WhichOneof("response")
    if kind == "response_put":
        return put_result(message.response_put)
    if kind == "response_range":
        return range_result(message.response_range)
    if kind == "response_delete_range":
        return delete_result(message.response_delete_range)
    return txn_result(message.response_txn)


def event(message: kv_pb2.Event) -> Event:
    before = key_value(message.prev_kv) if message.HasField("prev_kv") else None
    return Event(_EVENT_TYPES[message.type], key_value(message.kv), before)


def status_result(message: rpc_pb2.StatusResponse) -> Status:
    return Status(
        header(message.header),
        message.version,
        message.dbSize,
        message.leader,
        message.raftIndex,
        message.raftTerm,
        message.dbSizeInUse,
        message.isLearner,
        tuple(message.errors),
    )
