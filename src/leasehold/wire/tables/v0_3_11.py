"""Mooncake 0.3.11 and 0.3.11.post1, as the differences from 0.3.12: no tenants, no hosts, no groups."""

from __future__ import annotations

from typing import Final

from leasehold.wire import messages as m
from leasehold.wire.schema import BOOL, BYTES, I64, TEXT, U8, U64, UUID, VOID, Failed, Map, Record, Vector
from leasehold.wire.tables.release import Function, Release, expected
from leasehold.wire.tables.v0_3_12 import LATER, READ_ANSWER, REPLICA
from leasehold.wire.tables.v0_3_13 import OFFLOADED, functions

SEGMENT = Record(m.Segment, id=UUID, name=TEXT, base=U64, size=U64, te_endpoint=TEXT, protocol=TEXT)  # no host
CONFIG = Record(
    m.ReplicateConfig0312,
    replica_num=U64,
    nof_replica_num=U64,
    with_soft_pin=BOOL,
    with_hard_pin=BOOL,
    preferred_segments=Vector(TEXT),
    preferred_segment=TEXT,
    preferred_nof_segments=Vector(TEXT),
    prefer_same_node=BOOL,
    data_type=U8,
)
_LATER: Final = (*LATER, "PollRemoveAll")
_SIZES = expected(Map(TEXT, I64))  # by key
_OWN = {
    "MountSegment": Function(expected(VOID), segment=SEGMENT, client_id=UUID),
    "ReMountSegment": Function(expected(VOID), segments=Vector(SEGMENT), client_id=UUID),
    "OffloadObjectHeartbeat": Function(_SIZES, client_id=UUID, enable_offloading=BOOL),
    "PromotionObjectHeartbeat": Function(_SIZES, client_id=UUID),
    "NotifyOffloadSuccess": Function(expected(VOID), client_id=UUID, keys=Vector(BYTES), metadata=Vector(OFFLOADED)),
}


def _functions() -> dict[str, Function]:
    later = functions(replica=REPLICA, config=CONFIG, read_answer=READ_ANSWER, finished=BYTES)
    found = {
        name: function.without("tenant", m.DEFAULT_TENANT) for name, function in later.items() if name not in _LATER
    }
    return found | _OWN


V0_3_11 = Release(
    "0.3.11",
    _functions(),
    off={
        "MountLocalDiskSegment": Failed(-1300),
        "OffloadObjectHeartbeat": Failed(-101),
        "PromotionObjectHeartbeat": Failed(-101),
        "NotifyOffloadSuccess": Failed(-101),
    },
)
