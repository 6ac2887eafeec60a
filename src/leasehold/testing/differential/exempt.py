"""What is not compared, by name: what two clusters cannot share, and orders that etcd leaves to chance."""

from __future__ import annotations

from itertools import groupby
from typing import TypeVar

from google.protobuf.message import Message

from leasehold.etcd.pb import kv_pb2, rpc_pb2

M = TypeVar("M", bound=Message)
_SORT_FIELDS = ("key", "version", "create_revision", "mod_revision", "value")


def exempt(message: M) -> M:
    """The message without cluster id, member id, raft term and what is left of a lease's term.

    Lists in the order of a Go map, or of what is left of terms, are sorted.
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
    """Keys of equal rank in a sorted read come in whatever order Go's unstable sort leaves them: sort them by key.

    Where a limit cuts through such a group, which of them are told is open as well: their ranks are compared only.
    """
    if isinstance(request, rpc_pb2.RangeRequest) and isinstance(answer, rpc_pb2.RangeResponse):
        _settle_range(request, answer)
    if isinstance(request, rpc_pb2.TxnRequest) and isinstance(answer, rpc_pb2.TxnResponse):
        branch = request.success if answer.succeeded else request.failure
        for asked, told in zip(branch, answer.responses, strict=True):
            if asked.HasField("request_range"):
                _settle_range(asked.request_range, told.response_range)
            elif asked.HasField("request_txn"):
                settle_ties(asked.request_txn, told.response_txn)


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
