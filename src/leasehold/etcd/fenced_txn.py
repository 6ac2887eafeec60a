"""The transaction of a fenced write, encoded from a template and decoded by its usual shape: without protobuf objects.

A leader writes batches one after the other, each in a transaction of this shape:

    if the leader key has this create revision, and the slot is empty: put the slot; else: read both

Any other transaction, and any other answer, is left to the general codec.
"""

from __future__ import annotations

from leasehold.base.varint import varint
from leasehold.etcd import codec
from leasehold.etcd.pb import rpc_pb2
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Header, Put, PutResult, Range, Txn, TxnResult

_CREATE, _EQUAL = CompareTarget.CREATE, CompareResult.EQUAL
# Tags of etcd's messages: the field's number and type in one byte.
_COMPARE, _SUCCESS, _FAILURE = b"\x0a", b"\x12", b"\x1a"
_TARGET_CREATE, _COMPARE_KEY, _CREATE_REVISION = b"\x10\x01", b"\x1a", b"\x28"
_RANGE_OP, _PUT_OP = b"\x0a", b"\x12"
_KEY, _VALUE, _LEASE, _KEYS_ONLY = b"\x0a", b"\x12", b"\x18", b"\x40\x01"
_HEADER, _SUCCEEDED, _RESPONSE, _PUT_RESPONSE = b"\x0a", b"\x10\x01", b"\x1a", b"\x12"
_CLUSTER, _MEMBER, _REVISION, _TERM = b"\x08", b"\x10", b"\x18", b"\x20"


class FencedTxnEncoder:
    """Encodes the transactions of one leader; the template changes with its fence."""

    __slots__ = ("_before_key", "_before_put", "_before_slot", "_fence", "_key_bytes", "_leader")

    def __init__(self) -> None:
        self._fence: Compare | None = None
        self._leader: Range | None = None
        self._key_bytes = -1
        self._before_key = self._before_put = self._before_slot = b""

    def encode(self, txn: Txn) -> bytes | None:
        """The message, as the general codec encodes it; None if the transaction has another shape."""
        if len(txn.compare) != 2 or len(txn.success) != 1 or len(txn.failure) != 2:
            return None
        fence, empty = txn.compare
        (put,) = txn.success
        leader, slot = txn.failure
        if type(put) is not Put or type(leader) is not Range:
            return None
        key, value, lease = put.key, put.value, put.lease
        same = fence is self._fence and leader is self._leader and len(key) == self._key_bytes
        if not same and not self._learn(fence, leader, key):
            return None
        if (
            empty != Compare(key, _CREATE, _EQUAL, 0)
            or slot != Range(key)
            or put != Put(key, value, lease)
            or not value
        ):
            return None
        key_field = self._before_put + key
        value_head = _VALUE + varint(len(value))
        lease_field = _LEASE + varint(lease) if lease > 0 else b""
        put_bytes = len(key_field) + len(value_head) + len(value) + len(lease_field)
        put_head = _PUT_OP + varint(put_bytes)
        return b"".join((
            self._before_key, key, _CREATE_REVISION, b"\0",
            _SUCCESS, varint(len(put_head) + put_bytes), put_head, key_field, value_head, value, lease_field,
            self._before_slot, key,
        ))  # fmt: skip

    def _learn(self, fence: Compare, leader: Range, key: bytes) -> bool:
        """Make the template of this fence, for keys of this length. Returns False if it is no fence."""
        revision = fence.operand
        if not isinstance(revision, int) or revision < 0 or fence != Compare(fence.key, _CREATE, _EQUAL, revision):
            return False
        if leader != Range(fence.key, keys_only=True):
            return False
        fenced = _TARGET_CREATE + _field(_COMPARE_KEY, fence.key) + _CREATE_REVISION + varint(revision)
        # The parts around the key: their lengths depend on its length alone.
        slot_compare = _TARGET_CREATE + _COMPARE_KEY + varint(len(key))
        slot_compare_bytes = len(slot_compare) + len(key) + len(_CREATE_REVISION) + 1
        slot_read = _KEY + varint(len(key))
        slot_op = _RANGE_OP + varint(len(slot_read) + len(key)) + slot_read
        read_leader = _field(_FAILURE, _field(_RANGE_OP, _field(_KEY, fence.key) + _KEYS_ONLY))
        self._before_key = _field(_COMPARE, fenced) + _COMPARE + varint(slot_compare_bytes) + slot_compare
        self._before_put = _KEY + varint(len(key))
        self._before_slot = read_leader + _FAILURE + varint(len(slot_op) + len(key)) + slot_op
        self._fence, self._leader, self._key_bytes = fence, leader, len(key)
        return True


class FencedTxnDecoder:
    """Decodes answers. That of a written slot differs from the one before only in its revision."""

    __slots__ = ("_after", "_before", "_header", "_revision_bytes")

    def __init__(self) -> None:
        self._before = self._after = b""
        self._revision_bytes = 0
        self._header = Header(0)

    def decode(self, answer: bytes) -> TxnResult | None:
        """The result; None if the answer differs from the last one that was learned in more than its revision."""
        before, count = self._before, self._revision_bytes
        place = len(before) + count
        revision_bytes = answer[place - count : place]
        if not count or answer != before + revision_bytes + self._after + revision_bytes:
            return None
        revision = shift = 0
        for byte in revision_bytes:
            revision |= (byte & 0x7F) << shift
            shift += 7
        known = self._header
        header = Header(revision, known.cluster_id, known.member_id, known.raft_term)
        return TxnResult(header, True, (PutResult(Header(revision)),))

    def learn(self, message: rpc_pb2.TxnResponse) -> TxnResult:
        """Decode any answer, and remember the shape of one that wrote a slot."""
        result = codec.txn_result(message)
        header = result.header
        if result.succeeded and result.results == (PutResult(Header(header.revision)),) and header.revision > 0:
            count = len(varint(header.revision))
            first = _CLUSTER + varint(header.cluster_id) + _MEMBER + varint(header.member_id) + _REVISION
            term = _TERM + varint(header.raft_term)
            put_header = _HEADER + varint(len(_REVISION) + count) + _REVISION
            response = _PUT_RESPONSE + varint(len(put_header) + count) + put_header
            self._before = _HEADER + varint(len(first) + count + len(term)) + first
            self._after = term + _SUCCEEDED + _RESPONSE + varint(len(response) + count) + response
            self._header, self._revision_bytes = header, count
        return result


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + varint(len(content)) + content
