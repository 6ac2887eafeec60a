"""Random requests from a seed: mostly sensible, sometimes at a limit, sometimes plainly wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

from google.protobuf.message import Message
from msgspec import Struct

from leasehold.etcd.pb import rpc_pb2

KEYS = [b"a", b"ab", b"b", b"ba", b"bb", b"c", b"c\xff", b"c\xff\xff", b"d/1", b"d/2", b"d/3", b"e"]
ENDS = [b"", b"", b"", b"\0", b"b", b"c", b"d/", b"d0", b"f", b"a"]
VALUES = [b"", b"1", b"2", b"10", b"\xff", bytes(64)]
# Too long to expire during a run: expiry is a separate step, because its moment cannot be chosen.
TERM_S = 100_000
LEASE_IDS = [1, 2, 3, 0x7FFFFFFFFFFFFFFF, -5]
ORDERS = [cast(rpc_pb2.RangeRequest.SortOrder, number) for number in range(3)]
TARGETS = [cast(rpc_pb2.RangeRequest.SortTarget, number) for number in range(5)]
RESULTS = [cast(rpc_pb2.Compare.CompareResult, number) for number in range(4)]
REQUEST_BYTES_TOO_MANY = 1_700 * 1024


class Step(Struct, frozen=True):
    """One unary call. `reads`: it changes nothing, so several may run concurrently."""

    method: str
    request: Message
    reads: bool


class Generator:
    """Generates requests that fit the state of the reference: its revision and its compacted revision."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.revision = 1
        self.compacted = 0

    def next(self) -> Step:
        kinds: list[tuple[int, Callable[[], Step]]] = [
            (50, lambda: Step("Range", self.range(), True)),
            (16, lambda: Step("Put", self.put(), False)),
            (6, lambda: Step("DeleteRange", self.delete(), False)),
            (14, self._txn),
            (1, lambda: Step("Compact", self.compact(), False)),
            (3, self._lease_change),
            (8, self._lease_read),
        ]
        weights, makers = zip(*kinds, strict=True)
        maker: Callable[[], Step] = self.random.choices(makers, weights)[0]
        return maker()

    # ---- keys ----

    def key(self) -> bytes:
        return b"" if self.random.random() < 0.01 else self.random.choice(KEYS)

    def old_or_new_revision(self) -> int:
        """0 mostly; else the past, the compacted past, the future, or nonsense."""
        choice = self.random.random()
        if choice < 0.7:
            return 0
        if choice < 0.9:
            return self.random.randint(max(1, self.compacted), max(1, self.revision))
        if choice < 0.94:
            return self.random.randint(1, max(1, self.compacted))
        return self.random.choice([self.revision + 1, self.revision + 1000, -1])

    def bound(self) -> int:
        return self.random.randint(1, self.revision + 1) if self.random.random() < 0.1 else 0

    def range(self) -> rpc_pb2.RangeRequest:
        pick = self.random
        request = rpc_pb2.RangeRequest(key=self.key(), range_end=pick.choice(ENDS), revision=self.old_or_new_revision())
        if pick.random() < 0.3:
            request.limit = pick.choice([1, 2, 3, 100, -1])
        if pick.random() < 0.4:
            request.sort_order = pick.choice(ORDERS)
            request.sort_target = pick.choice(TARGETS)
        # Not an unknown sort target: etcd 3.5.1 dies of it.
        request.serializable = pick.random() < 0.2
        # Without values it is unknown which keys have equal rank by value.
        request.keys_only = pick.random() < 0.1 and request.sort_target != rpc_pb2.RangeRequest.VALUE
        request.count_only = pick.random() < 0.1
        request.min_mod_revision, request.max_mod_revision = self.bound(), self.bound()
        request.min_create_revision, request.max_create_revision = self.bound(), self.bound()
        return request

    def put(self) -> rpc_pb2.PutRequest:
        pick = self.random
        request = rpc_pb2.PutRequest(key=self.key(), value=pick.choice(VALUES), prev_kv=pick.random() < 0.3)
        if pick.random() < 0.25:
            request.lease = pick.choice([*LEASE_IDS, 77])
        if pick.random() < 0.08:
            request.ignore_value = True
            request.value = b"" if pick.random() < 0.8 else b"x"
        if pick.random() < 0.08:
            request.ignore_lease = True
            request.lease = 0 if pick.random() < 0.8 else 1
        if pick.random() < 0.001:
            request.value = bytes(REQUEST_BYTES_TOO_MANY)
        return request

    def delete(self) -> rpc_pb2.DeleteRangeRequest:
        pick = self.random
        # Deleting everything from a key on is rare: there would be little left to read.
        end = pick.choice(ENDS) if pick.random() < 0.3 else b""
        return rpc_pb2.DeleteRangeRequest(key=self.key(), range_end=end, prev_kv=pick.random() < 0.4)

    def compact(self) -> rpc_pb2.CompactionRequest:
        pick = self.random
        revision = pick.choice([self.revision, self.revision - 5, self.revision - 20, self.compacted, -1, 0])
        if pick.random() < 0.1:
            revision = self.revision + 10
        return rpc_pb2.CompactionRequest(revision=revision, physical=pick.random() < 0.5)

    # ---- transactions ----

    def _txn(self) -> Step:
        request = self.txn(depth=0)
        return Step("Txn", request, False)

    def txn(self, depth: int) -> rpc_pb2.TxnRequest:
        pick = self.random
        count = pick.choice([0, 1, 1, 2, 3]) if pick.random() > 0.01 else 129
        return rpc_pb2.TxnRequest(
            compare=[self.compare() for _ in range(pick.choice([0, 1, 1, 2]))],
            success=[self.op(depth) for _ in range(count)],
            failure=[self.op(depth) for _ in range(pick.choice([0, 1, 1, 2]))],
        )

    def op(self, depth: int) -> rpc_pb2.RequestOp:
        choice = self.random.random()
        if choice < 0.35:
            return rpc_pb2.RequestOp(request_range=self.range())
        if choice < 0.7:
            return rpc_pb2.RequestOp(request_put=self.put())
        if choice < 0.85:
            return rpc_pb2.RequestOp(request_delete_range=self.delete())
        if depth < 3 and choice < 0.995:
            return rpc_pb2.RequestOp(request_txn=self.txn(depth + 1))
        return rpc_pb2.RequestOp(request_put=self.put()) if choice < 0.998 else rpc_pb2.RequestOp()

    def compare(self) -> rpc_pb2.Compare:
        pick = self.random
        target = pick.randrange(5)
        message = rpc_pb2.Compare(
            key=self.key(), result=pick.choice(RESULTS), target=rpc_pb2.Compare.CompareTarget.Name(cast(Any, target))
        )
        fields = ["version", "create_revision", "mod_revision", "value", "lease"]
        # Now and then the operand is of another kind than the target says, or there is none.
        field = fields[target] if pick.random() < 0.96 else pick.choice([*fields, ""])
        operands: dict[str, list[int]] = {
            "version": [0, 1, 2],
            "create_revision": [0, self.revision, max(0, self.revision - 10)],
            "mod_revision": [0, self.revision, max(0, self.revision - 3)],
            "lease": [0, 1, 2, 77],
        }
        if field == "value":
            message.value = pick.choice(VALUES)
        elif field:
            setattr(message, field, pick.choice(operands[field]))
        if pick.random() < 0.2:
            message.range_end = pick.choice(ENDS)
        return message

    # ---- leases ----

    def _lease_change(self) -> Step:
        pick = self.random
        lease_id = pick.choice(LEASE_IDS)
        if pick.random() < 0.65:
            ttl_s = TERM_S + pick.randrange(10) if pick.random() < 0.95 else 9_000_000_001
            return Step("LeaseGrant", rpc_pb2.LeaseGrantRequest(ID=lease_id, TTL=ttl_s), False)
        return Step("LeaseRevoke", rpc_pb2.LeaseRevokeRequest(ID=pick.choice([lease_id, 77])), False)

    def _lease_read(self) -> Step:
        pick = self.random
        lease_id = pick.choice([*LEASE_IDS, 77, 0])
        if pick.random() < 0.2:
            return Step("LeaseLeases", rpc_pb2.LeaseLeasesRequest(), True)
        if pick.random() < 0.3:
            return Step("LeaseKeepAlive", rpc_pb2.LeaseKeepAliveRequest(ID=lease_id), True)
        return Step("LeaseTimeToLive", rpc_pb2.LeaseTimeToLiveRequest(ID=lease_id, keys=pick.random() < 0.7), True)

    # ---- watches ----

    def watch(self, watch_id: int) -> rpc_pb2.WatchCreateRequest:
        pick = self.random
        start = 0
        if pick.random() < 0.4:
            start = self.old_or_new_revision()
        if start and start == self.compacted:
            start += 1  # older releases of etcd lose a deletion at that very revision (issue 18089 there)
        return rpc_pb2.WatchCreateRequest(
            key=self.key(),
            range_end=pick.choice(ENDS),
            start_revision=start,
            prev_kv=pick.random() < 0.5,
            filters=pick.choice([[], [], [], ["NOPUT"], ["NODELETE"], ["NOPUT", "NODELETE"]]),
            fragment=pick.random() < 0.2,
            watch_id=watch_id,
        )
