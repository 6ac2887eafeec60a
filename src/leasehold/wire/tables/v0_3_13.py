"""Mooncake 0.3.13 and 0.3.13.post1: 64 functions."""

from __future__ import annotations

from leasehold.wire import messages as m
from leasehold.wire.schema import (
    BOOL,
    BYTES,
    I32,
    I64,
    TEXT,
    U8,
    U32,
    U64,
    UUID,
    VOID,
    Map,
    Optional,
    Record,
    Tuple,
    Type,
    Variant,
    Vector,
)
from leasehold.wire.tables.release import Function, Release, expected

SEGMENT = Record(m.Segment, id=UUID, name=TEXT, base=U64, size=U64, te_endpoint=TEXT, protocol=TEXT, host_id=TEXT)
NOF_SEGMENT = Record(m.NofSegment, id=UUID, name=TEXT, base=U64, size=U64, te_endpoint=TEXT)
BUFFER = Record(m.BufferDescriptor, size=U64, address=U64, protocol=TEXT, transport_endpoint=TEXT)
PLACES = (
    Record(m.MemoryReplica, buffer=BUFFER),
    Record(m.NofReplica, buffer=BUFFER),
    Record(m.DiskReplica, path=TEXT, size=U64),
    Record(m.LocalDiskReplica, client_id=UUID, size=U64, endpoint=TEXT),
    Record(m.DfsReplica, path=TEXT, offset=U64, size=U64, aligned=U64, shard=I32),
)
REPLICA = Record(m.ReplicaDescriptor, id=U64, place=Variant(*PLACES), status=I32)
CONFIG = Record(
    m.ReplicateConfig,
    replica_num=U64,
    nof_replica_num=U64,
    dfs_replica_num=U64,
    soft_pin_action=U8,
    soft_pin_ttl_ms=Optional(U64),
    with_hard_pin=BOOL,
    preferred_segments=Vector(TEXT),
    preferred_segment=TEXT,
    preferred_nof_segments=Vector(TEXT),
    prefer_same_node=BOOL,
    data_type=U8,
    host_id=TEXT,
    group_ids=Optional(Vector(BYTES)),
)
OBJECT_META = Record(m.ObjectMeta, key=BYTES, checksum=Optional(U64))
READ_ANSWER = Record(m.GetReplicaListResponse, replicas=Vector(REPLICA), lease_ttl_ms=U64, checksum=Optional(U64))
PING_ANSWER = Record(m.PingResponse, view_version=I64, client_status=I32)
STORAGE_CONFIG = Record(m.StorageConfig, fsdir=TEXT, disk_eviction=BOOL, quota=U64)
TASK = Record(m.TaskAssignment, id=UUID, type=I32, payload=TEXT, created_ms=I64, max_retries=U32)
TASK_REPORT = Record(m.TaskReport, id=UUID, status=I32, message=TEXT)
TASK_VIEW = Record(
    m.TaskView, id=UUID, type=I32, status=I32, created_ms=I64, updated_ms=I64, client_id=UUID, message=TEXT
)
OFFLOAD_ITEM = Record(m.OffloadItem, tenant=BYTES, key=BYTES, size=I64)
OFFLOADED = Record(m.OffloadedMeta, bucket_id=I64, offset=I64, key_size=I64, data_size=I64, endpoint=TEXT)
KEYS = Vector(BYTES)


def functions(*, replica: Record, config: Record, read_answer: Record, finished: Type) -> dict[str, Function]:
    """The functions over the four types that changed since 0.3.12; `finished` is what names an object at its end."""
    done, all_done = expected(VOID), Vector(expected(VOID))
    started, all_started = expected(Vector(replica)), Vector(expected(Vector(replica)))
    copy_plan = expected(Record(m.CopyPlan, source=replica, targets=Vector(replica)))
    move_plan = expected(Record(m.MovePlan, source=replica, target=Optional(replica)))
    start = {"client_id": UUID, "key": BYTES, "size": U64, "config": config, "tenant": BYTES}
    start_many = {"client_id": UUID, "keys": KEYS, "sizes": Vector(U64), "config": config, "tenant": BYTES}
    end = {"client_id": UUID, "object": finished, "type": I32, "tenant": BYTES}
    revoke = {"client_id": UUID, "key": BYTES, "type": I32, "tenant": BYTES}
    copy_key = {"client_id": UUID, "key": BYTES, "tenant": BYTES}
    copy_start = {"client_id": UUID, "key": BYTES, "tenant": BYTES, "source": TEXT, "targets": Vector(TEXT)}
    dynamic = {"lease_id": UUID, "version_epoch": U64}
    return {
        "ServiceReady": Function(expected(TEXT)),
        "GetStorageConfig": Function(expected(STORAGE_CONFIG)),
        "GetFsdir": Function(expected(TEXT)),
        "Ping": Function(expected(PING_ANSWER), client_id=UUID),
        "ExistKey": Function(expected(BOOL), key=BYTES, tenant=BYTES),
        "BatchExistKey": Function(Vector(expected(BOOL)), keys=KEYS, tenant=BYTES),
        "GetReplicaList": Function(expected(read_answer), key=BYTES, tenant=BYTES),
        "BatchGetReplicaList": Function(Vector(expected(read_answer)), keys=KEYS, tenant=BYTES),
        "GetReplicaListByRegex": Function(expected(Map(BYTES, Vector(replica))), pattern=BYTES, tenant=BYTES),
        "PutStart": Function(started, **start),
        "PutEnd": Function(done, **end),
        "PutRevoke": Function(done, **revoke),
        "BatchPutStart": Function(all_started, **start_many),
        "BatchPutEnd": Function(all_done, client_id=UUID, objects=Vector(finished), type=I32, tenant=BYTES),
        "BatchPutRevoke": Function(all_done, client_id=UUID, keys=KEYS, type=I32, tenant=BYTES),
        "UpsertStart": Function(started, **start),
        "UpsertEnd": Function(done, **end),
        "UpsertRevoke": Function(done, **revoke),
        "BatchUpsertStart": Function(all_started, **start_many),
        "BatchUpsertEnd": Function(all_done, client_id=UUID, objects=Vector(finished), tenant=BYTES),
        "BatchUpsertRevoke": Function(all_done, client_id=UUID, keys=KEYS, tenant=BYTES),
        "Remove": Function(done, key=BYTES, force=BOOL, tenant=BYTES),
        "RemoveByRegex": Function(expected(I64), pattern=BYTES, force=BOOL, tenant=BYTES),
        "RemoveAll": Function(I64, force=BOOL, tenant=BYTES),
        "BatchRemove": Function(all_done, keys=KEYS, force=BOOL, tenant=BYTES),
        "MountSegment": Function(done, segment=SEGMENT, client_id=UUID),
        "ReMountSegment": Function(done, segments=Vector(SEGMENT), client_id=UUID),
        "UnmountSegment": Function(done, segment_id=UUID, client_id=UUID),
        "GracefulUnmountSegment": Function(done, segment_id=UUID, client_id=UUID, grace_ms=U64),
        "MountNoFSegment": Function(done, segment=NOF_SEGMENT, client_id=UUID),
        "ReMountNoFSegment": Function(done, segments=Vector(NOF_SEGMENT), client_id=UUID),
        "UnmountNoFSegment": Function(done, segment_id=UUID, client_id=UUID),
        "GetAllNoFSegments": Function(expected(Vector(NOF_SEGMENT))),
        "GetNoFSegmentsByName": Function(expected(Vector(Tuple((UUID, UUID)))), name=TEXT),
        "QuerySegmentStatus": Function(expected(I32), name=TEXT),
        "QuerySegmentStatusById": Function(expected(I32), segment_id=UUID),
        "BatchQueryIp": Function(expected(Map(UUID, Vector(TEXT))), client_ids=Vector(UUID)),
        "BatchReplicaClear": Function(expected(Vector(BYTES)), keys=KEYS, client_id=UUID, segment_name=TEXT),
        "FetchTasks": Function(expected(Vector(TASK)), client_id=UUID, limit=U64),
        "MarkTaskToComplete": Function(done, client_id=UUID, report=TASK_REPORT),
        "CreateCopyTask": Function(expected(UUID), key=BYTES, tenant=BYTES, targets=Vector(TEXT)),
        "CreateMoveTask": Function(expected(UUID), key=BYTES, tenant=BYTES, source=TEXT, target=TEXT),
        "QueryTask": Function(expected(TASK_VIEW), task_id=UUID),
        "CopyStart": Function(copy_plan, **copy_start),
        "DynamicReplicaCopyStart": Function(copy_plan, **copy_start, **dynamic),
        "CopyEnd": Function(done, **copy_key),
        "CopyRevoke": Function(done, **copy_key),
        "DynamicReplicaCopyEnd": Function(done, **copy_key, **dynamic),
        "DynamicReplicaCopyRevoke": Function(done, **copy_key, **dynamic),
        "MoveStart": Function(move_plan, client_id=UUID, key=BYTES, tenant=BYTES, source=TEXT, target=TEXT),
        "MoveEnd": Function(done, **copy_key),
        "MoveRevoke": Function(done, **copy_key),
        "MountLocalDiskSegment": Function(done, client_id=UUID, enable_offloading=BOOL),
        "UnmountLocalDiskSegment": Function(done, client_id=UUID),
        "OffloadObjectHeartbeat": Function(expected(Vector(OFFLOAD_ITEM)), client_id=UUID, enable_offloading=BOOL),
        "PollRemoveAll": Function(expected(BOOL), client_id=UUID),
        "ReportSsdCapacity": Function(done, client_id=UUID, capacity_bytes=I64),
        "NotifyOffloadSuccess": Function(done, client_id=UUID, items=Vector(OFFLOAD_ITEM), metadata=Vector(OFFLOADED)),
        "PromotionObjectHeartbeat": Function(expected(Vector(OFFLOAD_ITEM)), client_id=UUID),
        "PromotionAllocStart": Function(
            expected(Record(m.PromotionPlan, target=replica)),
            client_id=UUID,
            key=BYTES,
            tenant=BYTES,
            size=U64,
            preferred_segments=Vector(TEXT),
        ),
        "NotifyPromotionSuccess": Function(done, **copy_key),
        "NotifyPromotionFailure": Function(done, **copy_key),
        "EvictDiskReplica": Function(done, client_id=UUID, key=BYTES, tenant=BYTES, type=I32),
        "BatchEvictDiskReplica": Function(all_done, client_id=UUID, keys=KEYS, tenant=BYTES, type=I32),
    }


V0_3_13 = Release("0.3.13", functions(replica=REPLICA, config=CONFIG, read_answer=READ_ANSWER, finished=OBJECT_META))
