"""Bad days of the coordination store under two real nodes: nothing acknowledged is lost, and service comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from leasehold.coord.connect import connect
from leasehold.ha.keys import Keys
from leasehold.mvcc.errors import NoSpace
from leasehold.testing.etcd import EtcdCluster, etcd_binary
from leasehold.testing.load import Burst
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import wait_until
from leasehold.testing.waiting import until
from leasehold.testing.workload import Lender, Putter, missing, recovery_ms

pytestmark = pytest.mark.xdist_group("store_faults")  # its processes are shared by the module

TTL_MS = 3_000


@pytest.fixture(scope="module")
def own_etcd() -> Iterator[EtcdCluster]:
    """An etcd for this test alone, which may be damaged."""
    with EtcdCluster(1, binary=etcd_binary(survives_kills=True), arguments=["--quota-backend-bytes=16777216"]) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def shared_nodes(own_etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    with NodeGroup(own_etcd.url, 2, cluster="faults", folder=tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


@pytest.fixture
def nodes(shared_nodes: NodeGroup) -> NodeGroup:
    shared_nodes.revive()
    return shared_nodes


async def still_right(nodes: NodeGroup, writers: Burst) -> None:
    """Check that every acknowledged object exists, and that new puts are accepted."""
    master = ",".join(nodes.addresses)
    await recovery_ms(master, writers.acknowledged[0])
    assert await missing(master, writers.acknowledged) == []
    putter = Putter(master, "after")

    async def ten_are_taken() -> bool:  # during a change of leader some puts fail
        await putter.put_batch(10)
        return len(putter.results.acknowledged) >= 10

    await until(ten_are_taken, "new puts are taken")
    assert await missing(master, sorted(putter.results.acknowledged)) == []
    putter.close()


@pytest.mark.parametrize("frozen_s", [4.0, pytest.param(15.0, marks=pytest.mark.chaos)])
async def test_a_frozen_store_stops_answers_and_loses_nothing(
    own_etcd: EtcdCluster, nodes: NodeGroup, frozen_s: float
) -> None:
    master = ",".join(nodes.addresses)
    async with Lender(master, size=4 << 30) as lender:
        async with Burst(master, writers=2) as writers:
            own_etcd.nodes[0].freeze()
            await asyncio.sleep(frozen_s)
            assert not any(node.is_primary() for node in nodes.nodes), "no node can prove that it may serve (P7)"
            own_etcd.nodes[0].thaw()
            await asyncio.to_thread(nodes.primary)
            await asyncio.sleep(0.3)
        await still_right(nodes, writers)
        assert lender.remounts == 0, "clients that could not ping get a new term"


async def test_a_restarted_store_loses_nothing(own_etcd: EtcdCluster, nodes: NodeGroup) -> None:
    master = ",".join(nodes.addresses)
    async with Lender(master, size=4 << 30):
        async with Burst(master, writers=2) as writers:
            await asyncio.to_thread(own_etcd.nodes[0].restart)
            await asyncio.to_thread(nodes.primary)
            await asyncio.sleep(0.3)
        await still_right(nodes, writers)


async def test_compaction_under_a_lagging_standby(own_etcd: EtcdCluster, nodes: NodeGroup) -> None:
    master = ",".join(nodes.addresses)
    standby = nodes.standbys()[0]
    async with Lender(master, size=4 << 30), await connect(own_etcd.url) as coord:
        async with Burst(master, writers=2) as writers:
            standby.freeze_host()
            await asyncio.sleep(1.0)
            await coord.compact((await coord.get(b"x")).header.revision)
            standby.thaw_host()
        await asyncio.to_thread(nodes.settle)
        nodes.primary().kill_worker()
        await still_right(nodes, writers)


async def test_a_full_store_acknowledges_nothing_and_loses_nothing(own_etcd: EtcdCluster, nodes: NodeGroup) -> None:
    master = ",".join(nodes.addresses)
    async with Lender(master, size=4 << 30), await connect(own_etcd.url) as coord:
        async with Burst(master, writers=2) as writers:
            await _fill(own_etcd)
            await until(
                lambda: any("database space exceeded" in node.log_path.read_text() for node in nodes.nodes),
                "the log says what is wrong",
            )
            await coord.delete(b"junk/", b"junk0")
            await coord.compact((await coord.get(b"x")).header.revision, physical=True)
            await asyncio.to_thread(_disarm, own_etcd)
            await asyncio.to_thread(nodes.primary)
            await asyncio.sleep(0.3)
        await still_right(nodes, writers)


def _disarm(etcd: EtcdCluster) -> None:
    """Free the space and clear the alarm, as an operator does with etcdctl."""
    node = etcd.nodes[0]
    assert node.http("/v3/maintenance/defragment", body=b"{}", timeout_s=60) is not None
    alarms = msgspec.json.decode(node.http("/v3/maintenance/alarm", body=b"{}") or b"{}")
    for alarm in alarms["alarms"]:
        wish = {"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"]}
        assert node.http("/v3/maintenance/alarm", body=msgspec.json.encode(wish)) is not None


async def _fill(etcd: EtcdCluster) -> None:
    """Write until etcd raises its alarm."""
    async with await connect(etcd.url) as coord:
        for number in range(200):
            try:
                await coord.put(b"junk/%d" % number, bytes(500_000))
            except NoSpace:
                return
    raise AssertionError("etcd never became full")


async def test_a_node_with_a_bad_record_is_not_ready_and_reports_it(own_etcd: EtcdCluster, nodes: NodeGroup) -> None:
    """Schedule 14. A newer snapshot of another node repairs it."""
    master = ",".join(nodes.addresses)
    standby = nodes.standbys()[0]
    keys = Keys("faults")
    async with Lender(master), await connect(own_etcd.url) as coord:
        putter = Putter(master, "k")
        await asyncio.to_thread(standby.stop)
        await putter.put_batch(5)
        last = (await coord.get(keys.explicit, keys.explicit + b"\xff", keys_only=True)).kvs[-1].key
        original = await coord.get_one(last)
        assert original is not None
        await coord.put(last, b"damaged" + original.value[7:])
        await putter.put_batch(5)
        standby.spawn()
        wait_until(lambda: standby.answers() and standby.status().quarantined_records > 0, "it has set a record aside")
        assert not standby.is_ready()
        await coord.put(last, original.value)  # repair the damage: the next listing finds a valid record
        standby.stop()
        standby.start()
        await asyncio.to_thread(nodes.settle)
        putter.close()


@pytest.mark.chaos
async def test_three_etcd_nodes_with_a_frozen_leader_then_without_quorum(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        EtcdCluster(3, binary=etcd_binary(survives_kills=True)) as etcd,
        NodeGroup(etcd.url, 2, cluster="three", folder=tmp_path_factory.mktemp("nodes")) as nodes,
    ):
        master = ",".join(nodes.addresses)
        async with Lender(master, size=4 << 30):
            async with Burst(master, writers=2) as writers:
                leader = etcd.leader()
                leader.freeze()
                took_ms = await recovery_ms(master, writers.putters[0].key(0))
                await asyncio.sleep(4)
                leader.thaw()
            await still_right(nodes, writers)
            assert took_ms <= 2 * TTL_MS, f"{took_ms} ms after etcd's leader was frozen"
            async with Burst(master, writers=2) as writers:
                frozen = etcd.followers()
                for node in frozen:
                    node.freeze()
                await asyncio.sleep(4)
                assert not any(node.is_primary() for node in nodes.nodes)
                for node in frozen:
                    node.thaw()
                await asyncio.to_thread(nodes.primary)
                await asyncio.sleep(0.3)
            await still_right(nodes, writers)


def test_log_lines_are_json_if_configured(nodes: NodeGroup) -> None:
    status, body = nodes.nodes[0].http("/metrics")
    assert status == 200
    assert b"leasehold_may_serve" in body
    assert nodes.nodes[0].http("/api/history?limit=x")[0] == 400
    assert nodes.nodes[0].http("/api/pause", body=b"[1]")[0] == 400
    assert msgspec.json.decode(nodes.nodes[0].http("/health")[1])["name"] == "n1"
