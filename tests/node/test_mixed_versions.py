"""A node of commit fa642a5 and a node of this commit in one cluster: each leads, dies and is rebuilt from the other.

fa642a5 is the last commit before the packages were reorganised. At feature level 0, store keys, journal, snapshots and
registrations must not have changed since: a cluster is upgraded one node at a time. At a higher level the old node is
refused, until the level was lowered again.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from leasehold.index.snapshot_format import SavedObject
from leasehold.journal.snapshot_file import Loaded, load_snapshot
from leasehold.node.worker.snapshot_files import unseal
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.load import Burst
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.process import wait_until
from leasehold.testing.workload import Lender, missing, recovery_ms
from leasehold.wire.client import Client

ROOT = Path(__file__).resolve().parents[2]
OLD = "fa642a5"
ARGUMENTS = ["--snapshot-records", "1000", "--snapshot", "1s"]  # so that the journal is truncated within the test


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source folder of the old commit."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", OLD, "src"], capture_output=True, check=False)
    if packed.returncode != 0:
        reason = packed.stderr.decode().strip()
        pytest.fail(f"commit {OLD} is not in this repository ({reason}): in a shallow clone, git fetch --unshallow")
    folder = tmp_path_factory.mktemp("old")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    source = folder / "src"
    code = "import leasehold, leasehold.coord.etcd; print(leasehold.__file__)"  # this package has moved since
    found = subprocess.run([sys.executable, "-c", code], env=env_of(source), capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(source)
    return source


def env_of(source: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(source)}


@pytest.fixture
def nodes(etcd: EtcdCluster, old_source: Path, tmp_path: Path) -> Iterator[NodeGroup]:
    """`n1` runs the old code and began the journal; `n2` runs the new code."""
    yield from pair(etcd, old_source, tmp_path, ARGUMENTS)


@pytest.fixture
def single_copy_nodes(etcd: EtcdCluster, old_source: Path, tmp_path: Path) -> Iterator[NodeGroup]:
    """As `nodes`; the snapshots of one node suffice to truncate the journal."""
    yield from pair(etcd, old_source, tmp_path, [*ARGUMENTS, "--copies", "1"])


def pair(etcd: EtcdCluster, old_source: Path, folder: Path, arguments: list[str]) -> Iterator[NodeGroup]:
    group = NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=folder, arguments=arguments)
    old = group.nodes[0] = NodeProcess(
        etcd.url, "n1", cluster=group.cluster, data_dir=folder / "n1", arguments=arguments, env=env_of(old_source)
    )
    old.start()  # alone: a new cluster of new nodes would start at the newest feature level
    wait_until(old.is_primary, "the old node began the journal")
    with group:
        environment = Path(f"/proc/{group.nodes[0].worker_pid}/environ").read_text()
        assert f"PYTHONPATH={old_source}\0" in environment
        yield group


def exported(node: NodeProcess, cluster: str) -> Loaded:
    """The whole index of a node, as `leasehold export` gets it."""
    answers: list[bytes] = []

    def answered() -> bool:
        status, body = node.http("/api/export")
        answers[:] = [body]
        return status == 200

    wait_until(answered, lambda: f"{node.name} exports its index: {answers}")
    raw = unseal(answers[0])
    assert raw is not None
    return load_snapshot(raw, cluster)


def state(loaded: Loaded) -> object:
    """Everything that records determine. Leases and quarantine are left out: each node has its own times for them."""
    saved = [each for part in loaded.slices for each in part.objects]
    objects = sorted(
        (msgspec.structs.replace(each, lease_end_ms=0, soft_pin_end_ms=0) for each in saved),
        key=lambda each: (each.tenant, each.key, each.put_seq),
    )
    copies = [each for part in loaded.slices for each in part.copies]
    keyless = loaded.keyless
    segments = sorted(keyless.segments, key=lambda each: each.incarnation)
    tasks = sorted(keyless.tasks, key=lambda each: each.id)
    return objects, copies, segments, sorted(keyless.clients), tasks, keyless.max_term_ms


def assert_equal_states(nodes: NodeGroup) -> list[SavedObject]:
    """Both nodes have the same state at the same record; returns its objects."""
    pair: list[Loaded] = []

    def level() -> bool:
        pair[:] = [exported(node, nodes.cluster) for node in nodes.nodes]
        return pair[0].end == pair[1].end

    wait_until(level, lambda: f"both are at one record: {[loaded.end for loaded in pair]}")
    assert state(pair[0]) == state(pair[1])
    return [each for part in pair[0].slices for each in part.objects]


async def switch_over(nodes: NodeGroup) -> None:
    before = nodes.primary()
    answers: list[tuple[int, bytes]] = []

    def done() -> bool:
        """The leader declines until it has seen that the other node is ready, shortly after the node itself knows."""
        answers[:] = [before.switchover()]
        return answers[0][0] == 200

    await asyncio.to_thread(wait_until, done, lambda: f"{before.name} hands over: {answers}")
    assert nodes.primary() is not before
    await asyncio.to_thread(nodes.settle)


async def rebuild(nodes: NodeGroup, node: NodeProcess) -> None:
    """Delete the node's data. The journal no longer has its beginning, so the node needs the other's snapshot."""
    other = next(each for each in nodes.nodes if each is not node)
    await asyncio.to_thread(wait_until, lambda: other.cluster_status().truncated_n > 0, "the journal is truncated")
    await asyncio.to_thread(node.stop)
    shutil.rmtree(node.data_dir / "data")
    await asyncio.to_thread(nodes.revive)


async def test_old_and_new_nodes_take_over_from_each_other(nodes: NodeGroup) -> None:
    await take_turns(nodes, rounds=1)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_old_and_new_nodes_take_over_from_each_other_five_times(nodes: NodeGroup) -> None:
    await take_turns(nodes, rounds=5)


async def take_turns(nodes: NodeGroup, rounds: int) -> None:
    """In each round three switchovers and two kills under load, and a rebuild of both; then equal states."""
    master = ",".join(nodes.addresses)
    old, new = nodes.nodes
    acknowledged: list[str] = []
    async with Lender(master, size=8 << 30) as lender, Lender(master, size=8 << 30, segments=2):
        for _ in range(rounds):
            # Small batches: each waits for the store, so the load stays small on any machine.
            async with Burst(master, writers=2, batch=5) as writers:
                if nodes.primary() is new:
                    await switch_over(nodes)
                for leads in (new, old, new):
                    await switch_over(nodes)
                    assert nodes.primary() is leads
                new.kill_worker()
                await recovery_ms(master, writers.putters[0].key(0))
                assert nodes.primary() is old
                await asyncio.to_thread(nodes.settle)
                old.kill_host()
                await recovery_ms(new.rpc, writers.putters[0].key(0))
                assert nodes.primary() is new
                await asyncio.to_thread(nodes.revive)
            acknowledged += writers.acknowledged
            assert await missing(master, acknowledged) == []
            acknowledged = await remove_some(master, acknowledged)
            await rebuild(nodes, old)
            await rebuild(nodes, new)
            assert await missing(master, acknowledged) == []
            objects = await asyncio.to_thread(assert_equal_states, nodes)
            assert {each.key.decode() for each in objects} >= set(acknowledged)
        assert lender.remounts == 0


async def remove_some(master: str, keys: list[str]) -> list[str]:
    """Read a tenth of the keys, remove half of them; return the keys that stay."""
    async with Client(master, timeout_ms=20_000) as client:
        await client.batch_get_replica_list(keys[::10])
        assert set(await client.batch_remove(keys[::2], force=True)) == {None}
    return keys[1::2]


def feature_level(nodes: NodeGroup, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `leasehold feature-level`."""
    admin = ",".join(node.admin for node in nodes.nodes)
    command = [sys.executable, "-m", "leasehold", "feature-level", *words, "--admin", admin]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def refused_since(node: NodeProcess, known: int) -> bool:
    """Whether the old node has reported the switch: in the journal, or in a snapshot if the journal was truncated."""
    return re.search("set asid[e]|is of no use", node.log_tail(100_000)[known:]) is not None


async def test_the_feature_level_is_raised_without_the_old_node_and_lowered_for_it(
    single_copy_nodes: NodeGroup,
) -> None:
    nodes = single_copy_nodes
    await asyncio.to_thread(nodes.settle)
    old, new = nodes.nodes
    master = ",".join(nodes.addresses)
    async with Lender(master, size=8 << 30):
        if nodes.primary() is old:
            await switch_over(nodes)
        refused = await asyncio.to_thread(feature_level, nodes, "raise", "1")
        assert (refused.returncode, "n1 cannot read feature level 1" in refused.stderr) == (1, True), refused
        await asyncio.to_thread(old.stop)
        await asyncio.to_thread(wait_until, lambda: len(new.cluster_status().nodes) == 1, "n1 is no longer registered")
        raised = await asyncio.to_thread(feature_level, nodes, "raise", "1")
        assert raised.returncode == 0, raised
        async with Burst(master, writers=2, batch=5) as writers:
            pass
        acknowledged = writers.acknowledged
        known = len(old.log_tail(100_000))
        await asyncio.to_thread(old.start)
        await asyncio.to_thread(wait_until, lambda: refused_since(old, known), "n1 reports that it cannot read this")
        assert not old.is_ready()

        lowered = await asyncio.to_thread(feature_level, nodes, "lower", "0")
        assert lowered.returncode == 0, lowered
        assert any("The feature level is 0" in line.sentence for line in new.history())
        async with Burst(master, writers=2, batch=5) as writers:
            await asyncio.to_thread(
                wait_until,
                lambda: '"older_nodes_can_join": true' in feature_level(nodes, "show", "--json").stdout,
                "the journal is truncated beyond the switch",
            )
            await asyncio.to_thread(nodes.settle)
            await switch_over(nodes)
        assert nodes.primary() is old
        acknowledged += writers.acknowledged
        assert await missing(master, acknowledged) == []
