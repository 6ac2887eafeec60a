"""Requests at the edges, where chance seldom goes: limits to the byte, keys of all ones, transactions in transactions.

Numbers that no enumeration has (an order, a kind of compare) are not among them: etcd lets such a compare hold,
whatever it was meant to say; the served store refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.base.limits import store_request_bytes_max, store_txn_ops_max
from leasehold.etcd.pb import rpc_pb2
from leasehold.testing.differential.generate import Step

LEASE_IDS = (-(1 << 63), (1 << 63) - 1, -1)
TTLS_S = (0, -1, 1, 9_000_000_000, 9_000_000_001, 1 << 62)


def edges() -> Iterator[Step]:
    """All of them, in order, for a store that has no keys."""
    for part in (_keys, _sizes, _counts, _nested, _bounds, _leases):
        yield from part()


def _put(key: bytes, value: bytes = b"", **fields: bool) -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=key, value=value, **fields))


def _get(key: bytes, revision: int = 0) -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=key, revision=revision))


def _delete(key: bytes, end: bytes = b"") -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(request_delete_range=rpc_pb2.DeleteRangeRequest(key=key, range_end=end))


def _inner(
    success: list[rpc_pb2.RequestOp] | None = None,
    failure: list[rpc_pb2.RequestOp] | None = None,
    compare: list[rpc_pb2.Compare] | None = None,
) -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(
        request_txn=rpc_pb2.TxnRequest(compare=compare or (), success=success or (), failure=failure or ())
    )


def _txn(
    *success: rpc_pb2.RequestOp, compare: list[rpc_pb2.Compare] | None = None, failure: int | rpc_pb2.RequestOp = 0
) -> Step:
    otherwise = [_get(b"a")] * failure if isinstance(failure, int) else [failure]
    return Step("Txn", rpc_pb2.TxnRequest(compare=compare or (), success=success, failure=otherwise), False)


def _version_of(key: bytes, version: int, end: bytes = b"") -> rpc_pb2.Compare:
    return rpc_pb2.Compare(key=key, range_end=end, version=version)


def _keys() -> Iterator[Step]:
    """Keys and ends of ranges that are the lowest, the highest, or "from this key on"."""
    for key in (b"\0", b"\0\0", b"\xff", b"\xff\xff", b"k" * 3_000, b"a", b"b"):
        yield Step("Put", rpc_pb2.PutRequest(key=key, value=b"v"), False)
    for key in (b"\0", b"\0\0", b"\xff", b"a"):
        for end in (b"\0", b"\0\0", b"\xff", b"\xff\xff", b"", b"a"):
            yield Step("Range", rpc_pb2.RangeRequest(key=key, range_end=end), True)
            yield _txn(_get(b"a"), compare=[_version_of(key, 1, end)])
            absent = rpc_pb2.DeleteRangeRequest(key=b"zz" + key, range_end=end and b"zz" + end)
            yield Step("DeleteRange", absent, False)
    yield _txn(compare=[_version_of(b"", 1)])
    yield _txn(compare=[_version_of(b"", 1, b"\0")])


def _sizes() -> Iterator[Step]:
    """To the byte; and a large part that keeps its lease, before one that is wrong in another way."""
    large = _put(b"big", bytes(store_request_bytes_max), ignore_lease=True)
    yield _txn(large, _put(b""))
    yield _txn(large)
    for more in (-60, *range(-16, 3), 10):
        yield Step("Put", rpc_pb2.PutRequest(key=b"big", value=bytes(store_request_bytes_max + more)), False)


def _counts() -> Iterator[Step]:
    """As many operations as are taken, and one more, on every side; the deeper, the fewer."""
    most, one, get = store_txn_ops_max, [_version_of(b"a", 1)], _get(b"a")
    for count in (most, most + 1):
        yield _txn(compare=one * count)
        yield _txn(*[get] * count)
        yield _txn(failure=count)
    for outer in (1, most // 2, most - 28):
        for inner in (most - outer, most - outer + 1):
            yield _txn(_inner([get] * inner), *[get] * (outer - 1))
            yield _txn(compare=one * outer, failure=_inner([get] * inner))


def _nested() -> Iterator[Step]:
    """What one part of a transaction sees of another, and which keys may come twice."""
    a = _put(b"a")
    yield _txn(a, a)
    yield _txn(a, _inner([a]))
    yield _txn(_inner([a], [a]))
    yield _txn(_inner([a]), _inner([a]))
    yield _txn(a, _delete(b"a"))
    yield _txn(_delete(b"a"), a)
    yield _txn(_delete(b"a", b"c"), _put(b"b"))
    yield _txn(_delete(b"a", b"\0"), _put(b"zz"))
    yield _txn(a, _inner([_delete(b"a")]))
    yield _txn(_delete(b"a"), _inner(failure=[a]))
    yield _txn(_delete(b"a"), _delete(b"a"), _get(b"a"))
    yield _txn(_inner())
    yield _txn(rpc_pb2.RequestOp())
    yield _txn(_put(b"q", b"1"), _get(b"q"), _inner([_get(b"q"), _put(b"r")]), _get(b"r"))
    yield _txn(_put(b"w"), _inner([_get(b"w")], [_get(b"a")], [_version_of(b"w", 0)]))
    for revision in (3, 1_000_000, -1):
        yield _txn(_put(b"w"), _get(b"w", revision))
    yield _txn(_put(b"nope", ignore_value=True))
    yield _txn(_put(b"new"), _inner([_put(b"new", ignore_value=True)]))
    both = rpc_pb2.PutRequest(key=b"b", ignore_value=True, ignore_lease=True, prev_kv=True)
    yield Step("Put", both, False)


def _bounds() -> Iterator[Step]:
    """Limits and bounds that make no sense."""
    for fields in (
        {"limit": -5},
        {"count_only": 1, "keys_only": 1, "limit": 1},
        {"min_mod_revision": 10, "max_mod_revision": 2},
        {"min_mod_revision": -10, "max_create_revision": -2},
    ):
        request = rpc_pb2.RangeRequest(key=b"a", range_end=b"z")
        for name, value in fields.items():
            setattr(request, name, value)
        yield Step("Range", request, True)
    yield Step("Compact", rpc_pb2.CompactionRequest(revision=0), False)


def _leases() -> Iterator[Step]:
    """Ids with and without a sign, terms that are too short, too long, or none."""
    for number, ttl_s in enumerate(TTLS_S, start=900):
        yield Step("LeaseGrant", rpc_pb2.LeaseGrantRequest(ID=number, TTL=ttl_s), False)
        yield Step("LeaseRevoke", rpc_pb2.LeaseRevokeRequest(ID=number), False)
    for lease_id in LEASE_IDS:
        same = rpc_pb2.Compare(key=b"l", target=rpc_pb2.Compare.LEASE, lease=lease_id)
        yield Step("LeaseGrant", rpc_pb2.LeaseGrantRequest(ID=lease_id, TTL=1_000), False)
        yield Step("Put", rpc_pb2.PutRequest(key=b"l", lease=lease_id), False)
        yield Step("LeaseTimeToLive", rpc_pb2.LeaseTimeToLiveRequest(ID=lease_id, keys=True), True)
        yield Step("LeaseKeepAlive", rpc_pb2.LeaseKeepAliveRequest(ID=lease_id), True)
        yield _txn(_get(b"l"), compare=[same])
        yield Step("LeaseRevoke", rpc_pb2.LeaseRevokeRequest(ID=lease_id), False)
