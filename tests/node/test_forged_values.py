"""Values that another client of the store wrote in place of a node's, on real processes; and the way to signatures."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from leasehold.coord.connect import connect
from leasehold.ha.keys import Keys, LeaderValue, pack
from leasehold.ha.node_values import NodeValue
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import wait_until
from leasehold.testing.waiting import until
from leasehold.testing.workload import Lender, Putter, missing
from leasehold.wire.client import Client


@contextlib.contextmanager
def stranger() -> Iterator[tuple[str, socket.socket]]:
    """An address where another program waits for connections."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        yield "{}:{}".format(*sock.getsockname()), sock


def was_dialled(sock: socket.socket) -> bool:
    try:
        sock.accept()
    except BlockingIOError:
        return False
    return True


def secret_file(folder: Path, *lines: str) -> Path:
    path = folder / "secret"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


async def test_a_forged_leader_value_is_restored_and_never_dialled(etcd: EtcdCluster, tmp_path: Path) -> None:
    file = secret_file(tmp_path, secrets.token_hex(32))
    arguments = ["--cluster-secret-file", str(file)]
    cluster = f"c{uuid4().hex[:8]}"
    keys = Keys(cluster)
    with (
        stranger() as (address, trap),
        NodeGroup(etcd.url, 2, cluster=cluster, folder=tmp_path, arguments=arguments) as nodes,
    ):
        primary, standby = nodes.primary(), nodes.standbys()[0]
        epoch = primary.status().epoch
        forged = pack(LeaderValue("stranger", "r", address, address, address))
        async with await connect(etcd.url) as coord, Client(standby.rpc) as client:
            for _ in range(3):
                written = (await coord.put(keys.leader, forged)).header.revision

                async def restored(since: int = written) -> bool:
                    found = await coord.get_one(keys.leader)
                    return found is not None and found.mod_revision > since and found.lease != 0

                assert await client.exist_key("k") is False, "the standby forwards to the primary"
                await until(restored, "the leader restores its key")
            # A lease of the stranger's own, and a value that was once good: still not signed for that lease.
            good = await coord.get_one(keys.leader)
            assert good is not None
            lease = (await coord.lease_grant(60)).id
            await coord.put(keys.leader, good.value.replace(b'"rpc"', b'"rpc"'), lease=lease)
            await until(lambda: primary.status().refused.get("forged leader value", 0) >= 4, "it is counted")
            await coord.put(
                keys.node("mallory"), pack(NodeValue("mallory", "r", "standby", ready=True, admin=address)), lease=lease
            )
            await until(lambda: standby.status().refused.get("forged registration") == 1, "it is counted")
            shown = primary.cluster_status()
            assert (shown.leader, shown.epoch) == (primary.node_name, epoch)
            assert "the registration of 'mallory' in the store" in shown.forged
            assert {peer.name for peer in shown.nodes} == {"n1", "n2"}
        assert not was_dialled(trap)
        assert primary.status().epoch == epoch, "leadership did not change"
        assert any("was overwritten: it named 'stranger'" in line.sentence for line in primary.history())


async def test_a_forged_key_does_not_outlive_its_dead_leader(etcd: EtcdCluster, tmp_path: Path) -> None:
    """Also without a secret: no node led after the leader's death, because the key had lost its lease."""
    cluster = f"c{uuid4().hex[:8]}"
    keys = Keys(cluster)
    with (
        stranger() as (address, trap),
        NodeGroup(etcd.url, 2, cluster=cluster, folder=tmp_path) as nodes,
    ):
        primary, standby = nodes.primary(), nodes.standbys()[0]
        async with await connect(etcd.url) as coord:
            primary.freeze_host()
            await coord.put(keys.leader, pack(LeaderValue("stranger", "r", address, address, address)))

            def named() -> bool:
                return any("'stranger'" in one for one in standby.cluster_status().forged)

            await asyncio.to_thread(wait_until, named, "status names it")
            primary.kill_host()
            assert address not in standby.http("/leader")[1].decode(), "Mooncake's scripts are not sent there"
            await asyncio.to_thread(wait_until, standby.is_primary, "the standby leads")
        assert not was_dialled(trap)


async def test_a_cluster_is_changed_to_signatures_one_node_at_a_time(etcd: EtcdCluster, tmp_path: Path) -> None:
    cluster = f"c{uuid4().hex[:8]}"
    file = secret_file(tmp_path, secrets.token_hex(32))
    keys = Keys(cluster)
    with NodeGroup(etcd.url, 2, cluster=cluster, folder=tmp_path) as nodes:
        master = ",".join(nodes.addresses)
        async with Lender(master), await connect(etcd.url) as coord:
            putter, stop = Putter(master, "k"), asyncio.Event()

            async def load() -> None:
                while not stop.is_set():
                    await putter.put_batch(2)

            loading = asyncio.create_task(load())
            for node in (nodes.standbys()[0], nodes.primary()):
                if node.is_primary():
                    assert (await asyncio.to_thread(node.switchover))[0] == 200
                await asyncio.to_thread(node.stop)
                node.argv += ["--cluster-secret-file", str(file)]
                await asyncio.to_thread(node.start)
                await asyncio.to_thread(nodes.settle)
            found = (await coord.get(keys.nodes, keys.nodes + b"\xff")).kvs
            assert [b'"signature"' in kv.value for kv in found] == [True, True]

            # Rotation: accept the new secret, sign with it, forget the old one. Each step on all nodes before the next.
            old, new = file.read_text().strip(), secrets.token_hex(32)
            epoch = nodes.primary().status().epoch
            for lines in ((old, new), (new, old), (new,)):
                before = [kv.value for kv in (await coord.get(keys.nodes, keys.nodes + b"\xff")).kvs]
                secret_file(tmp_path, *lines)
                if lines[0] == new and lines[-1] == old:

                    async def signed_again(before: list[bytes] = before) -> bool:
                        after = [kv.value for kv in (await coord.get(keys.nodes, keys.nodes + b"\xff")).kvs]
                        return not set(after) & set(before)

                    await until(signed_again, "registrations are signed with the new secret")
                await asyncio.sleep(1.5)  # the files are checked every second
                assert all(node.status().refused.get("forged registration") is None for node in nodes.nodes)
            stop.set()
            await loading
            primary = nodes.primary()
            assert primary.status().epoch == epoch, "the rotation did not change the leadership"
            assert primary.cluster_status().forged == ()
            assert putter.results.failures == [], "no call failed, neither during the restarts nor the rotation"
            assert putter.results.acknowledged
            assert await missing(master, sorted(putter.results.acknowledged)) == []
            putter.close()
        output = "".join(node.log_path.read_text() for node in nodes.nodes)
        assert not [secret for secret in (old, new) if secret in output]
