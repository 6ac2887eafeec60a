"""Attacks on the port of a storage host, on real processes: each is refused, counted and shown by status."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4
from zlib import crc32

from leasehold.pool import Pool
from leasehold.pool.capability import Capability, Right, segment_key, sign
from leasehold.pool.frame import ANSWER, Operation, Status, pack_request
from leasehold.pool.pool import granted
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup
from leasehold.testing.ports import free_ports, listens
from leasehold.testing.process import ServerProcess, wait_until
from leasehold.testing.waiting import until
from leasehold.wire.messages import BufferDescriptor, MemoryReplica, ReplicaDescriptor

SEGMENT_BYTES = 16 << 20


@dataclass
class Stage:
    """Two nodes and a storage host."""

    nodes: NodeGroup
    port: int
    metrics: int

    def request(self, head: bytes, data: bytes = b"") -> Status:
        """Send one request to the host, as an attacker would: past every client."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as sock:
            sock.sendall(head + data)
            answer = b""
            while len(answer) < ANSWER.size:
                piece = sock.recv(ANSWER.size - len(answer))
                assert piece, "the host closed the connection"
                answer += piece
            return Status(ANSWER.unpack(answer)[1])

    def write(self, address: int, data: bytes, *, number: int = 0, capability: bytes = b"") -> Status:
        return self.request(pack_request(Operation.WRITE, len(data), address, crc32(data), number, capability), data)

    def read(self, address: int, length: int, capability: bytes = b"") -> Status:
        return self.request(pack_request(Operation.READ, length, address, capability=capability))

    def counted(self, reason: str) -> bool:
        """The host's metrics count it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=60) as answer:
            return f'reason="{reason}"' in answer.read().decode()

    def shown(self) -> str:
        """The output of `leasehold status`."""
        command = [sys.executable, "-m", "leasehold", "status", "--admin", self.nodes.primary().admin]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return " ".join(done.stdout.split())  # without its line breaks


@contextlib.contextmanager
def staged(etcd: EtcdCluster, folder: Path, *, node: list[str], host: list[str]) -> Iterator[Stage]:
    port, metrics = free_ports(2)
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=folder, arguments=node) as nodes:
        command = [
            sys.executable, "-m", "leasehold", "host", "--segment", "16MiB", "--listen", f"127.0.0.1:{port}",
            "--master", ",".join(nodes.addresses), "--metrics", f"127.0.0.1:{metrics}", "--ping-interval", "100ms",
            "--name", "store-1", *host,
        ]  # fmt: skip
        up = functools.partial(listens, port)
        with ServerProcess("host", command, log_path=folder / "host.log", probe=up):
            wait_until(lambda: nodes.primary().status().index.segments == 1, "the segment is mounted")
            yield Stage(nodes, port, metrics)


async def place_of(pool: Pool, key: str) -> tuple[ReplicaDescriptor, BufferDescriptor]:
    (replica,) = (await pool.client.get_replica_list(key)).replicas
    assert isinstance(replica.place, MemoryReplica)
    return replica, replica.place.buffer


async def test_high_numbers_do_not_block_honest_puts(etcd: EtcdCluster, tmp_path: Path) -> None:
    """Without a secret, four writes under 2^63 made a host refuse every put until it was restarted."""
    with staged(etcd, tmp_path, node=[], host=[]) as stage:
        async with Pool(",".join(stage.nodes.addresses)) as pool:
            await pool.put("before", b"x" * 100)
            base = (await place_of(pool, "before"))[1].address & ~((1 << 32) - 1)
            quarter = SEGMENT_BYTES // 4
            for number in (1 << 63, (1 << 63) - 1, 1 << 40):
                for part in range(4):
                    status = await asyncio.to_thread(stage.write, base + part * quarter, bytes(quarter), number=number)
                    assert status in (Status.OK, Status.TOO_LATE)
                await asyncio.gather(*(pool.put(f"{number}/{each}", b"y" * 1000) for each in range(20)))
                assert await pool.get(f"{number}/7") == b"y" * 1000
        await until(lambda: "forged number" in stage.shown(), "status shows it")
        assert "a stranger writes to its port" in stage.shown()


async def test_requests_need_a_capability_for_their_range_and_window(etcd: EtcdCluster, tmp_path: Path) -> None:
    secret = secrets.token_hex(32)
    (tmp_path / "secret").write_text(f"{secret}\n")
    flags = ["--cluster-secret-file", str(tmp_path / "secret")]
    with staged(etcd, tmp_path, node=flags, host=[*flags, "--capability-ttl", "1s"]) as stage:
        async with Pool(",".join(stage.nodes.addresses)) as pool:
            await pool.put("mine", b"m" * 1000)
            await pool.put("next", b"n" * 1000)
            replica, buffer = await place_of(pool, "mine")
            capability = granted(replica)

            def attack(name: str) -> Status:
                read, write, at = stage.read, stage.write, buffer.address
                guessed = segment_key(b"guess" * 8, bytes(16), 1)
                everything = Capability(Right.READ, 1, 0, 1 << 62, 1 << 62, 1 << 40, 1 << 40)
                return {
                    "write without": lambda: write(at, b"f" * 1000, number=1 << 62),
                    "read without": lambda: read(at, 1000),
                    "changed": lambda: read(at, 1000, capability[:-1] + bytes([capability[-1] ^ 1])),
                    "own secret": lambda: read(at, 1000, sign(guessed, everything)),
                    "longer": lambda: read(at, 1001, capability),
                    "elsewhere": lambda: read(at + 4096, 10, capability),
                    "write with the right to read": lambda: write(at, b"f", capability=capability),
                    "as given": lambda: read(at, 1000, capability),
                }[name]()

            async def result(name: str) -> Status:
                return await asyncio.to_thread(attack, name)

            assert await result("write without") is Status.NO_CAPABILITY
            assert await result("read without") is Status.NO_CAPABILITY
            for name in ("changed", "own secret"):
                assert await result(name) is Status.FORGED_CAPABILITY
            fresh, _ = await place_of(pool, "mine")
            capability = granted(fresh)
            assert await result("as given") is Status.OK
            for name in ("longer", "elsewhere", "write with the right to read"):
                assert await result(name) is Status.OUTSIDE_CAPABILITY

            async def replayed() -> bool:
                return await result("as given") is Status.EXPIRED_CAPABILITY

            await until(replayed, "an old capability expires")
            assert await pool.get("mine") == b"m" * 1000
        reasons = ("NO_CAPABILITY", "FORGED_CAPABILITY", "OUTSIDE_CAPABILITY", "EXPIRED_CAPABILITY")
        assert all(stage.counted(reason) for reason in reasons)
        words = [reason.lower().replace("_", " ") for reason in reasons]
        await until(lambda: all(f"({word})" in stage.shown() for word in words), "status shows each with its reason")
        output = (tmp_path / "host.log").read_text() + stage.nodes.logs() + stage.shown()
        assert secret not in output


async def test_capabilities_survive_failovers_and_new_secrets_under_load(etcd: EtcdCluster, tmp_path: Path) -> None:
    """No read or write is refused for its capability while leaders change and the secret is replaced."""
    file, old, new = tmp_path / "secret", secrets.token_hex(32), secrets.token_hex(32)
    file.write_text(f"{old}\n")
    flags = ["--cluster-secret-file", str(file)]
    with staged(etcd, tmp_path, node=flags, host=[*flags, "--capability-ttl", "20s"]) as stage:
        done, stop = 0, asyncio.Event()
        async with Pool(",".join(stage.nodes.addresses), timeout_ms=60_000) as pool:

            async def load(name: str) -> None:
                nonlocal done
                while not stop.is_set():
                    key = f"{name}{done % 7}"
                    await pool.put(key, name.encode() * 500, replace=True)
                    assert await pool.get(key) is not None
                    done += 1

            loads = [asyncio.create_task(load(name)) for name in "ab"]

            async def goes_on() -> None:
                before = done
                await until(lambda: done > before + 10 or any(each.done() for each in loads), "the load goes on")

            await goes_on()
            for lines in ((old, new), (new, old), (new,)):
                file.write_text("".join(f"{line}\n" for line in lines))
                await asyncio.sleep(1.5)  # the file is checked every second
                await goes_on()
            assert (await asyncio.to_thread(stage.nodes.primary().switchover))[0] == 200
            await goes_on()
            stop.set()
            await asyncio.gather(*loads)
            (await asyncio.to_thread(stage.nodes.primary)).kill_worker()
            await pool.put("after", b"the failover")
            assert await pool.get("after") == b"the failover"
        assert "capability" not in stage.shown()
