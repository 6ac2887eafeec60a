"""`leasehold.Client` against our master and against the C++ one: every call, and what becomes of lost connections."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest
from tests.wire.conftest import need

import leasehold.sync
from leasehold.base.errors import Unavailable
from leasehold.node.service.functions import _OFF, _method_name
from leasehold.pool import Pool, SyncPool
from leasehold.runtime.portal import Through
from leasehold.testing.mooncake import NEWEST, MooncakeMaster, StandaloneMaster
from leasehold.wire import messages as m
from leasehold.wire.client import Client
from leasehold.wire.errors import CallLost, MasterError
from leasehold.wire.finder import MasterView
from leasehold.wire.native import PUT_START, Start
from leasehold.wire.schema import Failed
from leasehold.wire.sync import SyncClient
from leasehold.wire.tables import NEWEST as NEWEST_TABLE

LEASE = ("--lease-ttl", "60s", "--client-ttl", "600s")
Master = MooncakeMaster | StandaloneMaster


@pytest.fixture(params=["ours", "C++"])
def master(request: pytest.FixtureRequest) -> Iterator[Master]:
    if request.param == "C++":
        need(NEWEST)
    made: Master = MooncakeMaster("--client_ttl=600") if request.param == "C++" else StandaloneMaster(*LEASE)
    with made:
        yield made


def segment(number: int = 1) -> m.Segment:
    return m.Segment(bytes([number]) * 16, f"seg{number}", number << 40, 64 << 20, f"127.0.0.1:{number}", "tcp")


async def put(client: Client, key: str, size: int = 10, config: m.ReplicateConfig | None = None) -> None:
    await client.put_start(key, size, config)
    await client.put_end(key)


async def refused(code: int, call: object) -> None:
    with pytest.raises(MasterError) as caught:
        await call  # type: ignore[misc] # any of the client's calls
    assert caught.value.code == code


async def test_every_call(master: Master) -> None:
    async with Client(master.rpc) as client:
        assert await client.service_ready() == "2.0.0"
        assert (await client.storage_config()).fsdir == ""
        await client.mount_segment(segment(1))
        await client.mount_segment(segment(2))
        await client.remount_segment([segment(1), segment(2)])
        assert (await client.ping()).client_status == m.ClientStatus.OK
        assert await client.query_segment_status("seg1") == 1
        assert await client.query_segment_status_by_id(segment(1).id) == 1
        await refused(-101, client.query_segment_status_by_id(b"no such segment."))
        assert await client.fsdir() == ""
        assert await client.batch_query_ip([client.client_id]) == {client.client_id: ["127.0.0.1"]}

        (replica,) = await client.put_start("k", 10)
        assert replica.status == m.ReplicaStatus.PROCESSING
        await refused(-705, client.put_start("k", 10))
        await refused(-703, client.get_replica_list("k"))
        await client.put_end("k")
        assert await client.exist_key("k")
        await client.evict_disk_replica("k")
        await refused(-704, client.evict_disk_replica("no"))
        assert await client.batch_evict_disk_replica(["k", "no"]) == [None, Failed(-704)]
        assert await client.batch_exist_key(["k", "no"]) == [True, False]
        found = await client.get_replica_list("k")
        assert [each.status for each in found.replicas] == [m.ReplicaStatus.COMPLETE]
        assert found.lease_ttl_ms >= 10_000
        await refused(-704, client.get_replica_list("no"))
        assert (await client.batch_get_replica_list(["no", "k"]))[0] == Failed(-704)
        assert list(await client.get_replica_list_by_regex("^k$")) == [b"k"]

        started = await client.batch_put_start(["a", "b"], [1, 2])
        assert [len(each) for each in started if not isinstance(each, Failed)] == [1, 1]
        assert await client.batch_put_end(["a"]) == [None]
        assert await client.batch_put_revoke(["b"]) == [None]
        await client.put_start("c", 5)
        await client.put_revoke("c")
        await client.upsert_start("a", 7)
        await client.upsert_end("a", checksum=5)
        assert (await client.get_replica_list("a")).checksum == 5
        await client.batch_upsert_start(["d"], [7])
        assert await client.batch_upsert_end(["d"]) == [None]
        await client.upsert_start("e", 7)
        await client.upsert_revoke("e")
        await client.batch_upsert_start(["e"], [7])
        assert await client.batch_upsert_revoke(["e"]) == [None]

        await refused(-706, client.remove("k"))
        await client.remove("k", force=True)
        assert await client.batch_remove(["d", "no"], force=True) == [None, Failed(-704)]
        await put(client, "x1")
        assert await client.remove_by_regex("^x") == 1
        await refused(-600, client.remove_by_regex("("))
        await put(client, "y")
        assert await client.batch_replica_clear(["y"]) == [b"y"]

        await put(client, "m", config=m.ReplicateConfig(preferred_segment="seg1"))
        task = await client.create_copy_task("m", ["seg2"])
        assert (await client.query_task(task)).status == m.TaskStatus.PENDING
        assert [each.id for each in await client.fetch_tasks()] == [task]
        plan = await client.copy_start("m", "seg1", ["seg2"])
        assert (plan.source.status, [each.status for each in plan.targets]) == (3, [2])
        await client.copy_revoke("m")
        await client.copy_start("m", "seg1", ["seg2"])
        await client.copy_end("m")
        await client.mark_task_to_complete(task, m.TaskStatus.SUCCESS, "done")
        assert (await client.query_task(task)).message == "done"
        await put(client, "n", config=m.ReplicateConfig(preferred_segment="seg1"))
        await client.create_move_task("n", "seg1", "seg2")
        await client.move_start("n", "seg1", "seg2")
        await client.move_revoke("n")
        assert (await client.move_start("n", "seg1", "seg2")).target is not None
        await client.move_end("n")
        await client.graceful_unmount_segment(segment(2).id, 60_000)
        assert await client.remove_all(force=True) == 3
        await client.unmount_segment(segment(1).id)
        await client.unmount_segment(segment(2).id)


async def test_a_repeated_start_gets_the_same_space() -> None:
    """Schedule 20: the answer to a put_start was lost; the repeated call must not get "exists already"."""
    with StandaloneMaster(*LEASE) as master:
        async with Client(master.rpc) as client:
            await client.mount_segment(segment())
            start = Start(client.client_id, b"default", [b"a", b"b"], [10, 20], m.ReplicateConfig(), 99, False)
            first = await client.calls.own(PUT_START, start, repeat=True)
            again = await client.calls.own(PUT_START, start, repeat=True)
            assert [each.code for each in first.objects] == [0, 0]
            assert again == first
            await refused(-705, client.put_start("a", 10))


async def test_mooncake_clients_are_not_sent_to_our_hosts_nor_ours_to_theirs() -> None:
    with StandaloneMaster(*LEASE) as master:
        async with Client(master.rpc, native=True) as ours, Client(master.rpc) as theirs:
            await ours.mount_segment(m.Segment(b"h" * 16, "host", 0, 1 << 20, "127.0.0.1:7", "leasehold"))
            await refused(-200, theirs.put_start("k", 10))
            await put(ours, "k")
            assert [each.status for each in (await ours.get_replica_list("k")).replicas] == [3]
            await refused(-704, theirs.calls.mooncake("GetReplicaList", b"k", b"default"))
            await theirs.mount_segment(segment())
            await refused(-200, ours.put_start("large", 2 << 20))


async def test_reads_survive_a_restart_and_writes_report_an_unknown_outcome() -> None:
    with StandaloneMaster(*LEASE) as master:
        async with Client(master.rpc, timeout_ms=60_000) as client:
            assert not await client.exist_key("k")
            reading = asyncio.create_task(client.exist_key("k"))
            await asyncio.to_thread(master.restart)
            assert not await reading
            assert not await client.exist_key("k")
            await asyncio.to_thread(master.freeze)
            with pytest.raises(CallLost):
                await client.calls.mooncake("Remove", b"k", False, b"default", timeout_ms=200)
            await asyncio.to_thread(master.kill)
            with pytest.raises(Unavailable):
                await client.calls.mooncake("ExistKey", b"k", b"default", repeat=True, timeout_ms=200)


async def test_a_list_of_addresses_and_the_master_view_are_followed() -> None:
    with StandaloneMaster(*LEASE) as first, StandaloneMaster(*LEASE) as second:
        async with Client(f"{first.rpc},{second.rpc}") as client:
            assert not await client.exist_key("k")
            await asyncio.to_thread(first.kill)
            assert not await client.exist_key("k")
            assert client.calls.reconnects == 2
        store = await leasehold.connect("memory://")
        async with store, Client(MasterView(store, "pool"), timeout_ms=60_000) as client:
            waiting = asyncio.create_task(client.exist_key("k"))
            await store.put(b"mooncake-store/pool/master_view", second.rpc.encode())
            assert not await waiting


def test_the_synchronous_client() -> None:
    with StandaloneMaster(*LEASE) as master, leasehold.sync.Client(master.rpc) as client:
        client.mount_segment(segment())
        client.put_start("k", 10)
        client.put_end("k")
        assert client.exist_key("k") is True
        assert client.get_replica_list("k").replicas[0].status == 3
        with pytest.raises(MasterError, match="object has a lease"):
            client.remove("k")


# Function -> the method's name, where that does not follow from it.
_OTHER_NAMES = {"GetStorageConfig": "storage_config", "GetFsdir": "fsdir", "ReMountSegment": "remount_segment"}


# Only the owner of a disk calls these: Mooncake's own clients. Ours lends no disk.
_DISK_OWNERS = {
    "MountLocalDiskSegment", "UnmountLocalDiskSegment", "OffloadObjectHeartbeat", "PollRemoveAll", "ReportSsdCapacity",
    "NotifyOffloadSuccess", "PromotionObjectHeartbeat", "PromotionAllocStart", "NotifyPromotionSuccess",
    "NotifyPromotionFailure",
}  # fmt: skip


def test_every_function_that_is_served_has_its_method_in_both_faces() -> None:
    """Of the tables, all but the features that are off here (`service._OFF` answers for those)."""
    for name in NEWEST_TABLE.functions.keys() - _OFF.keys() - _DISK_OWNERS:
        method = _OTHER_NAMES.get(name, _method_name(name))
        assert inspect.iscoroutinefunction(getattr(Client, method, None)), f"{name}: Client.{method}"
        assert isinstance(getattr(SyncClient, method, None), Through), f"{name}: SyncClient.{method}"


def test_the_synchronous_faces_have_every_method() -> None:
    for core, face in ((Client, SyncClient), (Pool, SyncPool)):
        names = {name for name, each in vars(core).items() if inspect.iscoroutinefunction(each) and name[0] != "_"}
        assert names == {name for name, each in vars(face).items() if isinstance(each, Through)}
