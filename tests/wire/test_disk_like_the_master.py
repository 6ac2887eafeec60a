"""The functions of the disk tier, call by call, beside the C++ master with the tier enabled."""

from __future__ import annotations

from tests.wire.conftest import need
from tests.wire.conversation import ALL, CLIENT, FIRST_SEGMENT, PLAIN, STRANGER, Step, T, meta, talk

from leasehold.testing.mooncake import NEWEST, MooncakeMaster, OwnNode
from leasehold.wire import messages as m

LOCAL_DISK = int(m.ReplicaKind.LOCAL_DISK)
FAILED = m.OffloadedMeta(-1, 0, 0, -1, "")


def item(key: bytes, size: int = 10) -> m.OffloadItem:
    return m.OffloadItem(T, key, size)


def place(bucket: int, size: int = 10) -> m.OffloadedMeta:
    return m.OffloadedMeta(bucket, 0, 9, size, "127.0.0.1:7777")


STEPS: list[Step] = [
    ("OffloadObjectHeartbeat", CLIENT, True),
    ("PollRemoveAll", CLIENT),
    ("ReportSsdCapacity", CLIENT, 100),
    ("PromotionObjectHeartbeat", CLIENT),
    ("NotifyOffloadSuccess", CLIENT, [], []),
    ("NotifyOffloadSuccess", CLIENT, [item(b"k")], []),
    ("UnmountLocalDiskSegment", CLIENT),
    ("MountSegment", FIRST_SEGMENT, CLIENT),
    ("ReMountSegment", [FIRST_SEGMENT], CLIENT),
    ("MountLocalDiskSegment", CLIENT, True),
    ("MountLocalDiskSegment", CLIENT, True),
    ("ReportSsdCapacity", CLIENT, 100),
    ("ReportSsdCapacity", CLIENT, -1),
    ("ReportSsdCapacity", STRANGER, 100),
    ("PollRemoveAll", CLIENT),
    ("PollRemoveAll", STRANGER),
    ("OffloadObjectHeartbeat", CLIENT, True),
    ("OffloadObjectHeartbeat", STRANGER, True),
    ("PromotionObjectHeartbeat", CLIENT),
    ("PromotionAllocStart", CLIENT, b"k", T, 10, []),
    ("NotifyPromotionSuccess", CLIENT, b"k", T),
    ("NotifyPromotionFailure", CLIENT, b"k", T),
    ("EvictDiskReplica", CLIENT, b"k", T, LOCAL_DISK),
    ("PutStart", CLIENT, b"k", 10, PLAIN, T),
    ("OffloadObjectHeartbeat", CLIENT, True),
    ("PutEnd", CLIENT, meta(b"k"), ALL, T),
    ("OffloadObjectHeartbeat", CLIENT, True),
    ("OffloadObjectHeartbeat", CLIENT, True),
    ("GetReplicaList", b"k", T),
    ("NotifyOffloadSuccess", CLIENT, [item(b"k")], [place(1)]),
    ("GetReplicaList", b"k", T),
    ("BatchGetReplicaList", [b"k", b"none"], T),
    ("GetReplicaListByRegex", b"^k$", T),
    ("ExistKey", b"k", T),
    ("NotifyOffloadSuccess", CLIENT, [item(b"k")], [place(1)]),
    ("GetReplicaList", b"k", T),
    ("PromotionAllocStart", CLIENT, b"k", T, 10, []),
    ("NotifyPromotionSuccess", CLIENT, b"k", T),
    ("NotifyPromotionFailure", CLIENT, b"k", T),
    ("EvictDiskReplica", CLIENT, b"k", T, int(m.ReplicaKind.MEMORY)),
    ("EvictDiskReplica", STRANGER, b"k", T, LOCAL_DISK),
    ("GetReplicaList", b"k", T),
    ("BatchEvictDiskReplica", CLIENT, [b"k", b"none"], T, LOCAL_DISK),
    ("GetReplicaList", b"k", T),
    ("PutStart", CLIENT, b"second", 10, PLAIN, T),
    ("PutEnd", CLIENT, meta(b"second"), ALL, T),
    ("OffloadObjectHeartbeat", CLIENT, True),
    ("NotifyOffloadSuccess", CLIENT, [item(b"second")], [FAILED]),
    ("GetReplicaList", b"second", T),
    ("PutStart", CLIENT, b"third", 10, PLAIN, T),
    ("PutEnd", CLIENT, meta(b"third"), ALL, T),
    ("OffloadObjectHeartbeat", CLIENT, False),
    ("OffloadObjectHeartbeat", CLIENT, True),
    ("RemoveAll", True, T),
    ("PollRemoveAll", CLIENT),
    ("PollRemoveAll", CLIENT),
    ("ExistKey", b"k", T),
    ("UnmountLocalDiskSegment", CLIENT),
    ("OffloadObjectHeartbeat", CLIENT, True),
    ("NotifyOffloadSuccess", CLIENT, [item(b"k")], [place(2)]),
    ("MountLocalDiskSegment", CLIENT, True),
    ("NotifyOffloadSuccess", CLIENT, [item(b"unknown")], [place(3)]),
    ("ExistKey", b"unknown", T),
]

# By the number of the step: the answer here, and why it differs.
ON_PURPOSE: dict[int, tuple[str, str]] = {
    54: ("True", "files of versions that were removed one by one are deleted with the rest"),
    62: ("False", "a notice creates no object: the version in its file is unknown (P5)"),
}


async def test_the_tier_answers_as_the_c_master_does() -> None:
    need(NEWEST)
    with (
        MooncakeMaster("--enable_offload=true", "--default_kv_lease_ttl=60000", "--client_ttl=600") as theirs,
        OwnNode("--enable-offload", "true", "--lease-ttl", "60s", "--client-ttl", "600s") as ours,
    ):
        expected = await talk("127.0.0.1", theirs.rpc_port, STEPS)
        found = await talk("127.0.0.1", ours.rpc_port, STEPS)
    for number, (answer, _why) in ON_PURPOSE.items():
        expected[number] = expected[number].rpartition(" -> ")[0] + " -> " + answer
    assert found == expected
