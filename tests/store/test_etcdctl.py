"""The real etcdctl against the served store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

from tests.store.support import etcdctl, etcdctl_command, opened, run_etcdctl

import leasehold
from leasehold.store.opening import restore
from leasehold.store.status import ETCD_VERSION
from leasehold.testing.store import StoreProcess


def test_put_get_del(served_store: StoreProcess, prefix: bytes) -> None:
    endpoint, key = served_store.endpoint, prefix.decode()
    assert etcdctl(endpoint, "put", key + "a", "1") == "OK\n"
    assert etcdctl(endpoint, "put", key + "b", "2", "--prev-kv") == "OK\n"
    assert etcdctl(endpoint, "get", key + "a") == f"{key}a\n1\n"
    assert etcdctl(endpoint, "get", "--prefix", key, "--keys-only").split() == [key + "a", key + "b"]
    assert etcdctl(endpoint, "get", "--prefix", key, "--sort-by=value", "--order=DESCEND", "--limit=1").split() == [
        key + "b",
        "2",
    ]
    assert etcdctl(endpoint, "get", "--prefix", key, "--count-only", "-w", "fields").count('"Count" : 2') == 1
    assert etcdctl(endpoint, "del", "--prefix", key, "--prev-kv").startswith("2\n")
    refused = run_etcdctl(endpoint, ["put", key + "a", "--ignore-value"])
    assert "etcdserver: key not found" in refused.stderr


def test_txn(served_store: StoreProcess, prefix: bytes) -> None:
    key = prefix.decode()
    script = f'version("{key}") = "0"\n\nput {key} first\n\nget {key}\n\n'
    assert etcdctl(served_store.endpoint, "txn", stdin=script).startswith("SUCCESS\n\nOK")
    assert etcdctl(served_store.endpoint, "txn", stdin=script) == f"FAILURE\n\n{key}\nfirst\n"


async def test_watch(served_store: StoreProcess, prefix: bytes) -> None:
    key = prefix.decode()
    etcdctl(served_store.endpoint, "put", key, "before")
    header = json.loads(etcdctl(served_store.endpoint, "get", key, "-w", "json"))["header"]
    command = etcdctl_command(served_store.endpoint, "watch", key, "--prev-kv", "--rev", str(header["revision"]))
    watching = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "ETCDCTL_API": "3"}
    )
    assert watching.stdout is not None
    async with asyncio.timeout(60):
        assert [await watching.stdout.readline() for _ in range(3)] == [b"PUT\n", prefix + b"\n", b"before\n"]
        etcdctl(served_store.endpoint, "del", key)
        lines = [await watching.stdout.readline() for _ in range(5)]
        assert lines == [b"DELETE\n", prefix + b"\n", b"before\n", prefix + b"\n", b"\n"]
    watching.kill()
    await watching.wait()


def test_leases(served_store: StoreProcess, prefix: bytes) -> None:
    endpoint = served_store.endpoint
    lease = etcdctl(endpoint, "lease", "grant", "60").split()[1]
    etcdctl(endpoint, "put", prefix.decode(), "x", "--lease", lease)
    printed = etcdctl(endpoint, "lease", "timetolive", lease, "--keys")
    assert "granted with TTL(60s)" in printed
    assert prefix.decode() in printed
    assert lease in etcdctl(endpoint, "lease", "list")
    assert "keepalived with TTL(60)" in etcdctl(endpoint, "lease", "keep-alive", lease, "--once")
    assert "revoked" in etcdctl(endpoint, "lease", "revoke", lease)
    assert etcdctl(endpoint, "get", prefix.decode()) == ""


def test_lock(served_store: StoreProcess, prefix: bytes) -> None:
    out = etcdctl(served_store.endpoint, "lock", prefix.decode(), "--", "sh", "-c", "echo $ETCD_LOCK_KEY")
    assert out.startswith(prefix.decode())
    assert etcdctl(served_store.endpoint, "get", "--prefix", prefix.decode()) == ""


async def test_elect(served_store: StoreProcess, prefix: bytes) -> None:
    command = etcdctl_command(served_store.endpoint, "elect", prefix.decode(), "me")
    elected = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "ETCDCTL_API": "3"}
    )
    assert elected.stdout is not None
    async with asyncio.timeout(60):
        assert (await elected.stdout.readline()).startswith(prefix)
        assert await elected.stdout.readline() == b"me\n"
        elected.send_signal(signal.SIGINT)
        await elected.wait()
    assert etcdctl(served_store.endpoint, "get", "--prefix", prefix.decode()) == ""


def test_compaction(store: StoreProcess) -> None:
    for value in "123":
        etcdctl(store.endpoint, "put", "a", value)
    assert etcdctl(store.endpoint, "compaction", "3", "--physical") == "compacted revision 3\n"
    assert "required revision has been compacted" in run_etcdctl(store.endpoint, ["compaction", "3"]).stderr
    assert "required revision has been compacted" in run_etcdctl(store.endpoint, ["get", "a", "--rev", "2"]).stderr
    assert "required revision is a future revision" in run_etcdctl(store.endpoint, ["get", "a", "--rev", "9"]).stderr


def test_endpoint_and_members(served_store: StoreProcess) -> None:
    endpoint = served_store.endpoint
    health = run_etcdctl(endpoint, ["endpoint", "health"])
    assert "is healthy" in health.stdout + health.stderr
    (status,) = json.loads(etcdctl(endpoint, "endpoint", "status", "-w", "json"))
    assert status["Status"]["version"] == ETCD_VERSION
    assert status["Status"]["leader"] == status["Status"]["header"]["member_id"]
    (hashed,) = json.loads(etcdctl(endpoint, "endpoint", "hashkv", "-w", "json"))
    assert hashed["HashKV"]["hash"] > 0
    members = json.loads(etcdctl(endpoint, "member", "list", "-w", "json"))
    assert members["members"][0]["clientURLs"] == [f"http://{endpoint}"]
    assert "one member" in run_etcdctl(endpoint, ["member", "add", "x", "--peer-urls=http://127.0.0.1:1"]).stderr
    assert etcdctl(endpoint, "alarm", "list") == ""
    assert "Finished defragmenting" in etcdctl(endpoint, "defrag")
    assert "Status: false" in etcdctl(endpoint, "auth", "status")
    assert "root user does not exist" in run_etcdctl(endpoint, ["auth", "enable"]).stderr
    assert etcdctl(endpoint, "user", "list") == ""


async def test_snapshot_and_restore(store: StoreProcess, tmp_path: Path) -> None:
    async with await leasehold.connect(store.url) as client:
        grant = await client.lease_grant(600)
        for number in range(50):
            await client.put(b"%d" % number, b"v", lease=grant.id)
        await client.compact(20)
        before = await client.get(b"\0", b"\0")
    file = tmp_path / "saved"
    etcdctl(store.endpoint, "snapshot", "save", str(file))
    restore(file, tmp_path / "new")
    async with opened(tmp_path / "new") as again:
        after = await again.get(b"\0", b"\0")
        assert after.kvs == before.kvs
        assert after.header.revision == before.header.revision
        assert len((await again.lease_time_to_live(grant.id, keys=True)).keys) == 50
    with StoreProcess(data_dir=tmp_path / "served", arguments=["--restore", str(file)]) as served:
        assert etcdctl(served.endpoint, "get", "7") == "7\nv\n"


def test_the_hash_is_etcds(store: StoreProcess) -> None:
    """Equal histories have equal hashes, here and on a real etcd, so that a move between them can be checked."""
    from leasehold.testing.etcd import EtcdCluster

    with EtcdCluster(1) as cluster:
        hashes = []
        for endpoint in (store.endpoint, cluster.endpoints[0]):
            for value in ("1", "2"):
                etcdctl(endpoint, "put", "a", value)
                etcdctl(endpoint, "put", "b", value)
            etcdctl(endpoint, "del", "b")
            before = json.loads(etcdctl(endpoint, "endpoint", "hashkv", "-w", "json"))[0]["HashKV"]["hash"]
            etcdctl(endpoint, "compaction", "4")
            after = json.loads(etcdctl(endpoint, "endpoint", "hashkv", "-w", "json"))[0]["HashKV"]["hash"]
            hashes.append((before, after))
        assert hashes[0] == hashes[1]
