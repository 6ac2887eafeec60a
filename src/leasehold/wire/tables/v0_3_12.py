"""Mooncake 0.3.12 and 0.3.12.post1, as what differs from 0.3.13."""

from __future__ import annotations

from typing import Final

from leasehold.wire import messages as m
from leasehold.wire.schema import BOOL, BYTES, I32, TEXT, U8, U64, Optional, Record, Variant, Vector
from leasehold.wire.tables.release import Function, Release
from leasehold.wire.tables.v0_3_13 import PLACES, functions

REPLICA = Record(m.ReplicaDescriptor, id=U64, place=Variant(*PLACES[:4]), status=I32)  # no DFS yet
READ_ANSWER = Record(m.GetReplicaListResponse, replicas=Vector(REPLICA), lease_ttl_ms=U64)  # no checksum
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
    host_id=TEXT,
    group_ids=Optional(Vector(BYTES)),
)

LATER: Final = (
    "DynamicReplicaCopyStart",
    "DynamicReplicaCopyEnd",
    "DynamicReplicaCopyRevoke",
    "UnmountLocalDiskSegment",
)


def _functions() -> dict[str, Function]:
    later = functions(replica=REPLICA, config=CONFIG, read_answer=READ_ANSWER, finished=BYTES)
    return {name: function for name, function in later.items() if name not in LATER}


V0_3_12 = Release("0.3.12", _functions())
