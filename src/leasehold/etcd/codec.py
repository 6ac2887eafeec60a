"""The data model on the wire, as a client needs it: requests out, results in."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.etcd.pb import kv_pb2, rpc_pb2
from leasehold.mvcc.model import (
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
    return _fill_range(rpc_pb2.RangeRequest(), request)


def put_request(request: Put) -> rpc_pb2.PutRequest:
    return _fill_put(rpc_pb2.PutRequest(), request)


def delete_request(request: DeleteRange) -> rpc_pb2.DeleteRangeRequest:
    return _fill_delete(rpc_pb2.DeleteRangeRequest(), request)


def txn_request(request: Txn) -> rpc_pb2.TxnRequest:
    return _fill_txn(rpc_pb2.TxnRequest(), request)


# Messages are filled where they belong: put together from parts, every part would be copied into the next.
# Most reads are of one key, most writes plain: what has its default is not set, which would cost as much as the rest.


def _fill_range(message: rpc_pb2.RangeRequest, request: Range) -> rpc_pb2.RangeRequest:
    message.key = request.key
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


def _fill_put(message: rpc_pb2.PutRequest, request: Put) -> rpc_pb2.PutRequest:
    message.key = request.key
    message.value = request.value
    if request.lease:
        message.lease = request.lease
    if request.prev_kv:
        message.prev_kv = True
    if request.ignore_value:
        message.ignore_value = True
    if request.ignore_lease:
        message.ignore_lease = True
    return message


def _fill_delete(message: rpc_pb2.DeleteRangeRequest, request: DeleteRange) -> rpc_pb2.DeleteRangeRequest:
    message.key = request.key
    if request.range_end:
        message.range_end = request.range_end
    if request.prev_kv:
        message.prev_kv = True
    return message


def _fill_txn(message: rpc_pb2.TxnRequest, request: Txn) -> rpc_pb2.TxnRequest:
    for compare in request.compare:
        slot = message.compare.add()
        slot.key = compare.key
        slot.result = int(compare.result)  # type: ignore[assignment]  # protobuf takes the number
        slot.target = int(compare.target)  # type: ignore[assignment]  # likewise
        setattr(slot, _OPERAND[compare.target], compare.operand)
        if compare.range_end:
            slot.range_end = compare.range_end
    for op in request.success:
        _fill_op(message.success.add(), op)
    for op in request.failure:
        _fill_op(message.failure.add(), op)
    return message


def _fill_op(slot: rpc_pb2.RequestOp, op: Op) -> None:
    if isinstance(op, Put):
        _fill_put(slot.request_put, op)
    elif isinstance(op, Range):
        _fill_range(slot.request_range, op)
    elif isinstance(op, DeleteRange):
        _fill_delete(slot.request_delete_range, op)
    else:
        slot.request_txn.SetInParent()  # there even if it is empty
        _fill_txn(slot.request_txn, op)


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
    for branch in (txn.success, txn.failure):
        for op in branch:
            if not isinstance(op, Range) and not (isinstance(op, Txn) and is_read_only(op)):
                return False
    return True


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
