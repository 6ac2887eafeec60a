"""Events over real ZeroMQ: a subscriber ends with exactly the keys that the pool has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import msgspec
import zmq
import zmq.asyncio
import zmq.auth

from leasehold.events.subscriber import Subscriber
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.ports import free_ports
from leasehold.testing.workload import Lender, Putter

Ports = tuple[str, str]
LIMIT_S = 60


def _publishing(coord: str, count: int, folder: Path, *more: str) -> tuple[NodeGroup, list[Ports]]:
    cluster = f"c{uuid4().hex[:8]}"
    group = NodeGroup(coord, 0, cluster=cluster, folder=folder)
    where: list[Ports] = []
    for number in range(1, count + 1):
        publisher, requests = (f"127.0.0.1:{port}" for port in free_ports(2))
        where.append((publisher, requests))
        arguments = ["--events-bind", publisher, "--events-requests", requests, *more]
        name = f"n{number}"
        group.nodes.append(NodeProcess(coord, name, cluster=cluster, data_dir=folder / name, arguments=arguments))
    return group, where


async def _equals_the_pool(subscriber: Subscriber, group: NodeGroup) -> None:
    """Wait until the picture is that of the pool."""
    pool: set[bytes] = set()
    async with asyncio.timeout(LIMIT_S):
        while True:
            assert subscriber.failed is None
            primary = await asyncio.to_thread(group.primary)
            status, body = await asyncio.to_thread(primary.http, "/get_all_keys")
            pool = set(body.split()) if status == 200 else pool
            picture = {key for _, key in subscriber.objects}
            if status == 200 and subscriber.whole and picture == pool:
                return
            await asyncio.sleep(0.05)


async def test_a_subscriber_follows_through_three_failovers_and_an_overflow(etcd: EtcdCluster, tmp_path: Path) -> None:
    group, where = _publishing(
        etcd.url, 2, tmp_path, "--events-queue", "100", "--eviction-high-watermark", "0.8", "--lease-ttl", "100ms"
    )
    with group:
        master = ",".join(group.addresses)
        # Space for 1,000 of the 1,300 objects: some are evicted.
        async with Subscriber(where) as subscriber, Lender(master, size=1 << 20):
            putter = Putter(master, "k")
            for number in range(9):
                await putter.put_batch(50)
                await putter.remove(putter.key(50 * number))
                if number == 2:
                    await asyncio.to_thread(group.primary().kill_worker)
                if number == 4:
                    await asyncio.to_thread(group.settle)
                    assert (await asyncio.to_thread(group.primary().switchover))[0] == 200
                if number == 6:
                    await asyncio.to_thread(group.primary().kill_host)
            await _equals_the_pool(subscriber, group)
            await asyncio.to_thread(group.revive)
            follower = subscriber.follower
            epoch, reloads = follower.epoch, follower.reloads
            await putter.put_batch(500)  # decided in one turn: more than the queue holds
            await putter.put_batch(500)
            await _equals_the_pool(subscriber, group)
            primary = await asyncio.to_thread(group.primary)
            status = msgspec.json.decode(primary.http("/kv_events/status")[1])
            assert status["enabled"]
            assert status["dropped_events"] >= 100
            assert follower.reloads > reloads, "the dropped events were loaded"
            assert follower.epoch == epoch
            assert follower.diverged == 0
            assert primary.status().index.evicted > 0
            putter.close()


async def test_a_stranger_is_refused_and_a_known_subscriber_is_served(tmp_path: Path) -> None:
    keys = tmp_path / "clients"
    keys.mkdir()
    zmq.auth.create_certificates(str(keys), "router")
    (keys / "router.key_secret").rename(tmp_path / "router.key_secret")
    _, server_secret = zmq.auth.create_certificates(str(tmp_path), "server")
    public, _ = zmq.auth.load_certificate(server_secret)
    secret = zmq.auth.load_certificate(str(tmp_path / "router.key_secret"))[1]
    assert secret is not None
    stranger = zmq.curve_keypair()[1]
    group, where = _publishing(
        "memory://", 1, tmp_path, "--events-curve-key", str(server_secret), "--events-curve-clients", str(keys)
    )
    with group:
        master = ",".join(group.addresses)
        async with (
            Subscriber(where, server_key=public, secret_key=secret) as known,
            Subscriber(where, server_key=public, secret_key=stranger) as unknown,
            Subscriber(where) as open_one,
            Lender(master),
        ):
            putter = Putter(master, "k")
            await putter.put_batch(50)
            await _equals_the_pool(known, group)
            assert len(known.objects) == 50
            for other in (unknown, open_one):
                assert not other.whole
                assert not other.objects
            putter.close()


async def test_a_plain_subscriber_gets_the_three_frames_of_mooncakes_publisher(tmp_path: Path) -> None:
    group, where = _publishing("memory://", 1, tmp_path, "--events-backend-id", "pool-7")
    with group, zmq.asyncio.Context() as context, context.socket(zmq.SUB) as sock:
        sock.linger = 0
        sock.subscribe(b"")
        sock.connect(f"tcp://{where[0][0]}")
        master = ",".join(group.addresses)
        async with Lender(master):
            putter = Putter(master, "plain")
            async with asyncio.timeout(LIMIT_S):
                while not await sock.poll(100):
                    await putter.put_batch(1)
                topic, count, payload = await sock.recv_multipart()
            putter.close()
        _, events, rank = msgspec.msgpack.decode(payload)
        assert (topic, len(count), rank) == (b"", 8, 0)
        assert events[0]["event_type"] == "stored"
        assert events[0]["object_key"].startswith("plain-")
        assert events[0]["backend_id"] == "pool-7"
