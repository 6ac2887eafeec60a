"""Fields and orders that are not compared: values that differ between clusters, and orders that etcd leaves open."""

from __future__ import annotations

from itertools import groupby
from typing import TypeVar

from google.protobuf.message import Message

from leasehold.etcd.pb import kv_pb2, rpc_pb2

M = TypeVar("M", bound=Message)
_SORT_FIELDS = ("key", "version", "create_revision", "mod_revision", "value")


def exempt(message: M) -> M:
    """The message without cluster id, member id, raft term and the remaining TTL of a lease.

    Lists in the order of a Go map, or of remaining TTLs, are sorted.
    """
    header = getattr(message, "header", None)
    if isinstance(header, rpc_pb2.ResponseHeader):
        header.cluster_id = header.member_id = header.raft_term = 0
    if isinstance(message, rpc_pb2.LeaseTimeToLiveResponse):
        if message.TTL > 0:
            message.TTL = 1
        keys = sorted(message.keys)
        del message.keys[:]
        message.keys.extend(keys)
    if isinstance(message, rpc_pb2.LeaseLeasesResponse):
        leases = sorted(message.leases, key=lambda lease: lease.ID)
        del message.leases[:]
        message.leases.extend(leases)
    return message


def settle_ties(request: Message, answer: Message) -> None:
    """Keys of equal rank in a sorted read come in any order, because Go's sort is unstable: sort them by key.

    If a limit cuts through such a group, the choice of keys is open as well: then only their ranks are compared.
    """
    if isinstance(request, rpc_pb2.RangeRequest) and isinstance(answer, rpc_pb2.RangeResponse):
        _settle_range(request, answer)
    if isinstance(request, rpc_pb2.TxnRequest) and isinstance(answer, rpc_pb2.TxnResponse):
        branch = request.success if answer.succeeded else request.failure
        for operation, response in zip(branch, answer.responses, strict=True):
            if operation.HasField("request_range"):
                _settle_range(operation.request_range, response.response_range)
            elif operation.HasField("request_txn"):
                settle_ties(operation.request_txn, response.response_txn)


def _settle_range(request: rpc_pb2.RangeRequest, answer: rpc_pb2.RangeResponse) -> None:
    field = _SORT_FIELDS[request.sort_target]
    if field == "key":
        return
    settled: list[kv_pb2.KeyValue] = []
    groups = [list(group) for _, group in groupby(answer.kvs, key=lambda kv: getattr(kv, field))]
    for number, group in enumerate(groups):
        if answer.more and number == len(groups) - 1:
            settled += [kv_pb2.KeyValue(**{field: getattr(kv, field)}) for kv in group]
        else:
            settled += sorted(group, key=lambda kv: kv.key)
    del answer.kvs[:]
    answer.kvs.extend(settled)
