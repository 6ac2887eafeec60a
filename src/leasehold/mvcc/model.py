"""The etcd v3 data model: requests to a store, and its results.

Names and meanings follow etcd's API. An empty `range_end` names the single key, `b"\\0"` everything
from `key` on; `prefix_end` gives the end of a prefix.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

FROM_KEY = b"\0"


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that start with `prefix`: the first key after them."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return FROM_KEY
    return stripped[:-1] + bytes([stripped[-1] + 1])


class Header(Struct, frozen=True, gc=False):
    """The member that answered, and the store's revision at that time."""

    revision: int
    cluster_id: int = 0
    member_id: int = 0
    raft_term: int = 0


class KeyValue(Struct, frozen=True, gc=False):
    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


class SortOrder(IntEnum):
    NONE = 0
    ASCEND = 1
    DESCEND = 2


class SortTarget(IntEnum):
    KEY = 0
    VERSION = 1
    CREATE = 2
    MOD = 3
    VALUE = 4


class Range(Struct, frozen=True):
    key: bytes
    range_end: bytes = b""
    limit: int = 0
    revision: int = 0
    sort_order: SortOrder = SortOrder.NONE
    sort_target: SortTarget = SortTarget.KEY
    serializable: bool = False
    keys_only: bool = False
    count_only: bool = False
    min_mod_revision: int = 0
    max_mod_revision: int = 0
    min_create_revision: int = 0
    max_create_revision: int = 0


class Put(Struct, frozen=True):
    key: bytes
    value: bytes = b""
    lease: int = 0
    prev_kv: bool = False
    ignore_value: bool = False
    ignore_lease: bool = False


class DeleteRange(Struct, frozen=True):
    key: bytes
    range_end: bytes = b""
    prev_kv: bool = False


class CompareResult(IntEnum):
    EQUAL = 0
    GREATER = 1
    LESS = 2
    NOT_EQUAL = 3


class CompareTarget(IntEnum):
    VERSION = 0
    CREATE = 1
    MOD = 2
    VALUE = 3
    LEASE = 4


class Compare(Struct, frozen=True):
    """`operand` is bytes for VALUE, else an integer."""

    key: bytes
    target: CompareTarget
    result: CompareResult
    operand: int | bytes
    range_end: bytes = b""


class Txn(Struct, frozen=True):
    """Runs `success` if all of `compare` hold, else `failure`: atomically, at one revision."""

    compare: tuple[Compare, ...] = ()
    success: tuple[Op, ...] = ()
    failure: tuple[Op, ...] = ()


Op: TypeAlias = Range | Put | DeleteRange | Txn


class RangeResult(Struct, frozen=True):
    header: Header
    kvs: tuple[KeyValue, ...] = ()
    more: bool = False
    count: int = 0


class PutResult(Struct, frozen=True):
    header: Header
    prev_kv: KeyValue | None = None


class DeleteResult(Struct, frozen=True):
    header: Header
    deleted: int = 0
    prev_kvs: tuple[KeyValue, ...] = ()


class TxnResult(Struct, frozen=True):
    header: Header
    succeeded: bool
    results: tuple[OpResult, ...] = ()


OpResult: TypeAlias = RangeResult | PutResult | DeleteResult | TxnResult


class CompactResult(Struct, frozen=True):
    header: Header


class LeaseGrantResult(Struct, frozen=True):
    header: Header
    id: int
    ttl_s: int


class LeaseRevokeResult(Struct, frozen=True):
    header: Header


class LeaseKeepAliveResult(Struct, frozen=True):
    """A `ttl_s` of 0 or less means that the lease does not exist."""

    header: Header
    id: int
    ttl_s: int


class LeaseTimeToLiveResult(Struct, frozen=True):
    """`ttl_s` is -1 for a lease that does not exist."""

    header: Header
    id: int
    ttl_s: int
    granted_ttl_s: int = 0
    keys: tuple[bytes, ...] = ()


class LeaseListResult(Struct, frozen=True):
    header: Header
    leases: tuple[int, ...] = ()


class EventType(IntEnum):
    PUT = 0
    DELETE = 1


class Event(Struct, frozen=True):
    """A DELETE carries only its key and, as `mod_revision`, the revision of the deletion."""

    type: EventType
    kv: KeyValue
    prev_kv: KeyValue | None = None


class WatchFilter(IntEnum):
    NO_PUT = 0
    NO_DELETE = 1


class Watch(Struct, frozen=True):
    """`start_revision` 0 means from now on."""

    key: bytes
    range_end: bytes = b""
    start_revision: int = 0
    prev_kv: bool = False
    progress_notify: bool = False
    fragment: bool = False
    filters: tuple[WatchFilter, ...] = ()


class WatchBatch(Struct, frozen=True):
    """Events of whole revisions, in order. As in etcd, `header.revision` is the store's, which may be later.

    A batch without events is a progress report: nothing up to `header.revision` is missing.
    """

    header: Header
    events: tuple[Event, ...] = ()


class Status(Struct, frozen=True):
    header: Header
    version: str
    db_size: int
    leader: int
    raft_index: int
    raft_term: int
    db_size_in_use: int = 0
    is_learner: bool = False
    errors: tuple[str, ...] = ()
