"""The client on real etcd: users, TLS, namespaces, slow readers, busy threads, forks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import leasehold
import leasehold.sync
from leasehold.base.errors import InvalidArgument, LeaseholdError, Unavailable
from leasehold.coord.api import Coord
from leasehold.coord.errors import AuthenticationFailed, ClientClosed, PermissionDenied, SlowConsumer
from leasehold.coord.follow import Snapshot, follow
from leasehold.coord.url import parse_url
from leasehold.etcd.client import EtcdCoord
from leasehold.etcd.diagnosis import why_silent
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.transport.wrong_server import WANTS_TLS
from leasehold.etcd.watch import EtcdWatch
from leasehold.mvcc.model import Range, prefix_end
from leasehold.testing.certificates import CertificateAuthority
from leasehold.testing.etcd import EtcdBinary, EtcdCluster, etcd_binaries
from leasehold.testing.grpc_stubs import rpc_pb2_grpc
from leasehold.testing.ports import free_ports
from leasehold.testing.waiting import until

TOKEN_TTL_S = 2


async def enable_auth(endpoint: str) -> None:
    """A root user, and `alice`, who may use keys that start with /alice/."""
    import grpc.aio

    async with grpc.aio.insecure_channel(endpoint) as channel:
        auth = rpc_pb2_grpc.AuthStub(channel)  # type: ignore[no-untyped-call]  # generated
        await auth.RoleAdd(rpc_pb2.AuthRoleAddRequest(name="root"))
        await auth.UserAdd(rpc_pb2.AuthUserAddRequest(name="root", password="secret"))
        await auth.UserGrantRole(rpc_pb2.AuthUserGrantRoleRequest(user="root", role="root"))
        await auth.RoleAdd(rpc_pb2.AuthRoleAddRequest(name="alice"))
        permission = rpc_pb2.AuthRoleGrantPermissionRequest(name="alice")
        permission.perm.permType = 2  # type: ignore[assignment]  # READWRITE; protobuf takes the number
        permission.perm.key, permission.perm.range_end = b"/alice/", prefix_end(b"/alice/")
        await auth.RoleGrantPermission(permission)
        await auth.UserAdd(rpc_pb2.AuthUserAddRequest(name="alice", password="pw"))
        await auth.UserGrantRole(rpc_pb2.AuthUserGrantRoleRequest(user="alice", role="alice"))
        await auth.AuthEnable(rpc_pb2.AuthEnableRequest())


@pytest.mark.parametrize("binary", etcd_binaries(), ids=str)
async def test_a_user_works_on_after_the_token_has_expired(binary: EtcdBinary) -> None:
    """Calls, a watch started later on the old stream, and the renewal of a lease."""
    arguments = ["--auth-token-ttl", str(TOKEN_TTL_S)] if binary.version >= (3, 5, 0) else []
    async with EtcdCluster(1, binary=binary, arguments=arguments) as cluster:
        await enable_auth(cluster.endpoints[0])
        # To look at a password takes etcd a while, on purpose, and a busy machine takes longer.
        patience: dict[str, Any] = {"timeout_s": 60, "attempt_timeout_s": 30}
        async with await leasehold.connect(cluster.url, user="alice", password="pw", **patience) as client:
            await client.put(b"/alice/a", b"1")
            with pytest.raises(PermissionDenied):
                await client.put(b"/bob/a", b"1")
            sent_ms = client.now_ms()
            lease = await client.lease_grant(6)
            await client.put(b"/alice/held", lease=lease.id)
            keeper = client.keep_alive(lease.id, lease.ttl_s, sent_ms)
            early = client.watch(b"/alice/a")
            await early.ready()
            await asyncio.sleep(TOKEN_TTL_S + 1.5 if arguments else 1.0)
            expired_ms = client.now_ms()
            late = client.watch(b"/alice/b")
            await late.ready(60)
            await client.put(b"/alice/a", b"2")
            await client.put(b"/alice/b", b"2")
            assert (await asyncio.wait_for(anext(aiter(early)), 60)).events[0].kv.value == b"2"
            assert (await asyncio.wait_for(anext(aiter(late)), 60)).events[0].kv.value == b"2"
            forbidden = client.watch(b"/bob/a")
            with pytest.raises(PermissionDenied):
                await asyncio.wait_for(anext(aiter(forbidden)), 60)
            await until(lambda: keeper.deadline_ms > expired_ms + lease.ttl_s * 1_000, "it is renewed with a new token")
            assert await client.get_one(b"/alice/held") is not None
            assert not keeper.lost
            keeper.close()
        async with await leasehold.connect(cluster.url, user="alice", password="wrong", **patience) as client:
            with pytest.raises(AuthenticationFailed):
                await client.get(b"/alice/a")
        async with await leasehold.connect(cluster.url) as client:
            with pytest.raises(AuthenticationFailed):
                await client.put(b"/alice/a")


async def test_an_infinite_timeout_and_one_that_has_passed(etcd: EtcdCluster, prefix: bytes) -> None:
    async with await leasehold.connect(etcd.url) as client:
        await client.put(prefix, b"1", timeout_s=float("inf"))
        for over_s in (0, -1.0):
            with pytest.raises(Unavailable, match="before anything was sent"):
                await client.put(prefix, b"2", timeout_s=over_s)
        found = await client.get_one(prefix)
        assert found is not None
        assert found.value == b"1"


async def keeps_a_lease(client: Coord) -> bool:
    """Whether renewals, which have a connection of their own, get through."""
    sent_ms = client.now_ms()
    lease = await client.lease_grant(4)
    keeper = client.keep_alive(lease.id, lease.ttl_s, sent_ms)
    await until(lambda: keeper.deadline_ms > sent_ms + lease.ttl_s * 1_000, "it is renewed")
    keeper.close()
    return not keeper.lost


async def test_tls_and_mutual_tls() -> None:
    authority = CertificateAuthority()
    certificate, key = authority.client("alice")
    async with EtcdCluster(1, authority=authority, client_certificates=True) as cluster:
        trusted = await leasehold.connect(cluster.url, ca=authority.ca_pem, cert=certificate, key=key)
        async with trusted as client:
            await client.put(b"a", b"over TLS")
            assert await keeps_a_lease(client)
        async with await leasehold.connect(cluster.url, ca=authority.ca_pem, timeout_s=1) as anonymous:
            with pytest.raises(Unavailable):
                await anonymous.get(b"a")
        stranger = CertificateAuthority("another authority")
        async with await leasehold.connect(cluster.url, ca=stranger.ca_pem, timeout_s=1) as distrustful:
            with pytest.raises(Unavailable):
                await distrustful.get(b"a")
        plain = cluster.url.replace("etcds://", "etcd://")
        assert await why_silent(plain) == WANTS_TLS, "also for a server that requires client certificates"
        assert "its certificate is not valid" in await why_silent(cluster.url), "first that: its name is not known"


async def test_tls_from_files_named_in_the_url(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"
    for path, pem in zip((cert, key), authority.client(), strict=True):
        path.write_bytes(pem)
    async with EtcdCluster(1, authority=authority, client_certificates=True) as cluster:
        ca = authority.ca_file(tmp_path)
        async with await leasehold.connect(f"{cluster.url}?ca={ca}&cert={cert}&key={key}") as client:
            await client.put(b"a", b"1")


def test_files_for_tls_with_an_address_without_tls_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="write etcds://"):
        parse_url("etcd://h1:2379?ca=/x.pem")
    with pytest.raises(InvalidArgument, match="both cert and key"):
        parse_url("etcds://h1:2379?cert=/x.pem")
    with pytest.raises(InvalidArgument, match="commas between them"):
        parse_url("etcd://h1:2379;h2:2379")


async def test_whom_the_system_trusts_is_trusted_by_calls_and_by_renewals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = CertificateAuthority()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file(tmp_path)))
    async with EtcdCluster(1, authority=authority) as cluster, await leasehold.connect(cluster.url) as client:
        assert await keeps_a_lease(client)


async def test_a_namespace_sees_only_itself(etcd: EtcdCluster, prefix: bytes) -> None:
    space = prefix.decode()
    async with await leasehold.connect(etcd.url) as whole, await leasehold.connect(etcd.url, namespace=space) as part:
        stream = part.watch(b"a", b"\0")
        await stream.ready()
        await whole.put(prefix + b"b", b"1")
        await whole.put(prefix[:-1] + b"0", b"outside")
        await part.put(b"c", b"2")
        found = await part.get(b"\0", b"\0")
        assert [kv.key for kv in found.kvs] == [b"b", b"c"]
        first = (await asyncio.wait_for(anext(aiter(stream)), 60)).events[0]
        assert first.kv.key == b"b"
        assert (await part.delete(b"\0", b"\0")).deleted == 2
        assert await whole.get_one(prefix[:-1] + b"0") is not None


async def test_a_slow_reader_gets_an_error_and_can_resume(etcd: EtcdCluster, prefix: bytes) -> None:
    async with await leasehold.connect(etcd.url, watch_queue_events_max=10) as client:
        stream = client.watch(prefix, prefix_end(prefix))
        await stream.ready()
        for number in range(40):
            await client.put(prefix + b"%02d" % number)
        assert isinstance(stream, EtcdWatch)
        await until(lambda: stream._error is not None, "more has come than is kept for it")
        seen = []
        resume_revision = 0
        try:
            async for batch in stream:
                seen += [event.kv.key for event in batch.events]
        except SlowConsumer as error:
            resume_revision = error.resume_revision
        assert resume_revision
        assert 0 < len(seen) <= 10
        async with client.watch(prefix, prefix_end(prefix), start_revision=resume_revision) as again:
            async with asyncio.timeout(60):
                async for batch in again:
                    seen += [event.kv.key for event in batch.events]
                    if len(seen) >= 40:
                        break
        assert seen == [prefix + b"%02d" % number for number in range(40)]


async def test_follow_lists_again_after_compaction(prefix: bytes) -> None:
    async with EtcdCluster(1) as cluster, await leasehold.connect(cluster.url) as client:
        await client.put(prefix + b"a", b"1")
        views = follow(client, prefix, prefix_end(prefix), page_keys=1)
        first = await anext(views)
        assert isinstance(first, Snapshot)
        assert [kv.value for kv in first.kvs] == [b"1"]
        node = cluster.nodes[0]
        await asyncio.to_thread(node.stop)  # the watch is not there when history is made and forgotten
        await asyncio.to_thread(node.start)
        async with await leasehold.connect(cluster.url) as other:
            for number in range(30):
                await other.put(prefix + b"b", b"%d" % number)
            last = (await other.put(prefix + b"a", b"2")).header.revision
            await other.compact(last)
        state: dict[bytes, bytes] = {}
        async with asyncio.timeout(60):
            while state.get(prefix + b"a") != b"2":
                view = await anext(views)
                kvs = view.kvs if isinstance(view, Snapshot) else [event.kv for event in view.events]
                state.update({kv.key: kv.value for kv in kvs})
        assert state[prefix + b"b"] == b"29"
        with contextlib.suppress(RuntimeError):
            await views.aclose()  # type: ignore[attr-defined]  # it is an async generator


@pytest.mark.alone
async def test_a_busy_main_thread_does_not_delay_renewals(etcd: EtcdCluster) -> None:
    async with await leasehold.connect(etcd.url) as client:
        sent_ms = client.now_ms()
        lease = await client.lease_grant(3)
        keeper = client.keep_alive(lease.id, lease.ttl_s, sent_ms)
        end = time.monotonic() + 7
        while time.monotonic() < end:  # the loop is blocked, and the interpreter is busy
            sum(range(1000))
        assert keeper.deadline_ms > client.now_ms()
        assert (await client.lease_time_to_live(lease.id)).ttl_s > 0
        keeper.close()


async def test_answers_never_go_back_in_revision(etcd: EtcdCluster, prefix: bytes) -> None:
    """The answer of a member that is behind is rejected. Here it is the only member, so the call fails."""
    async with await leasehold.connect(etcd.url, timeout_s=1) as client:
        revision = (await client.put(prefix, b"1", timeout_s=60)).header.revision
        assert isinstance(client, EtcdCoord)
        client.saw_revision(revision + 1_000)
        with pytest.raises(Unavailable, match="has been seen"):
            await client.get(prefix, serializable=True)


async def test_a_closed_client_raises_client_closed(etcd: EtcdCluster) -> None:
    client = await leasehold.connect(etcd.url)
    stream = client.watch(b"a")
    await stream.ready()
    reading = asyncio.ensure_future(anext(aiter(stream)))
    await asyncio.sleep(0)
    await client.close()
    await client.close()
    with pytest.raises(ClientClosed):
        await reading
    with pytest.raises(ClientClosed):
        await client.get(b"a")
    with pytest.raises(ClientClosed):
        client.watch(b"a")


@pytest.mark.parametrize("alive", [True, False])
async def test_closing_during_anything_ends_it_in_our_words(etcd: EtcdCluster, prefix: bytes, alive: bool) -> None:
    """Calls that wait for a connection, for an answer, for an event: each of them ends, with an error of ours."""
    for turns in range(0, 12, 2):
        client = await leasehold.connect(etcd.url if alive else f"etcd://127.0.0.1:{free_ports(1)[0]}", timeout_s=90)
        stream = client.watch(prefix)
        calls = [
            asyncio.ensure_future(call)
            for _ in range(5)
            for call in (
                client.put(prefix, b"x"),
                client.get(prefix),
                client.get(prefix, serializable=True),
                client.txn(success=[Range(prefix)]),
                client.lease_grant(10),
                client.lease_keep_alive_once(7),
                client.status(),
                stream.ready(),
                anext(aiter(stream)),
            )
        ]
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        async with asyncio.timeout(60):
            await client.close()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        odd = [
            outcome
            for outcome in outcomes
            if isinstance(outcome, BaseException) and not isinstance(outcome, (LeaseholdError, StopAsyncIteration))
        ]
        assert not odd


def test_a_client_from_before_a_fork_is_refused_and_a_new_one_works(etcd: EtcdCluster) -> None:
    """In its own process: a child of this one would run pytest a second time."""
    script = f"""
import asyncio, os, sys
import leasehold, leasehold.sync
from leasehold.coord.errors import ForkedClient
async def open_and_use():
    client = await leasehold.connect({etcd.url!r})
    lease = await client.lease_grant(60)
    client.keep_alive(lease.id, lease.ttl_s, client.now_ms())
    return client
loop = asyncio.new_event_loop()
client = loop.run_until_complete(open_and_use())
child = os.fork()
if child == 0:
    code = 1
    try:
        coroutine = client.get(b"a")
        try:
            coroutine.send(None)
        except ForkedClient:
            code = 0
        store = leasehold.sync.connect({etcd.url!r})
        lease = store.lease_grant(5)
        kept = store.keep_alive(lease.id, lease.ttl_s, store.now_ms() - 4000)
        first_ms = kept.deadline_ms
        while kept.deadline_ms == first_ms:
            store.get(b"a")
        store.lease_revoke(lease.id)
        store.close()
    except BaseException:
        code = 2
        raise
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
loop.run_until_complete(client.get(b"a"))
loop.run_until_complete(client.close())
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=90, env=dict(os.environ))


@pytest.mark.parametrize("face", ["async", "sync"])
def test_a_program_that_ends_without_closing_ends(etcd: EtcdCluster, face: str) -> None:
    """With a watch and a lease being renewed: no thread keeps it, nothing crashes."""
    script = f"""
import asyncio, leasehold, leasehold.sync
async def use():
    client = await leasehold.connect({etcd.url!r})
    lease = await client.lease_grant(5)
    client.keep_alive(lease.id, lease.ttl_s, client.now_ms())
    await client.watch(b"a").ready()
def use_sync():
    client = leasehold.sync.connect({etcd.url!r})
    lease = client.lease_grant(5)
    client.keep_alive(lease.id, lease.ttl_s, client.now_ms())
    client.watch(b"a").ready()
asyncio.run(use()) if {face!r} == "async" else use_sync()
print("done")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("done\n")


def test_the_synchronous_face(etcd: EtcdCluster, prefix: bytes) -> None:
    with leasehold.sync.connect(etcd.url, namespace=prefix) as store:
        store.put(b"a", b"1")
        assert [kv.value for kv in store.get(b"a").kvs] == [b"1"]
        with store.watch(b"a") as events:
            start = events.ready()
            assert store.put(b"a", b"2").header.revision >= start  # a lease that another test has left may end here
            assert next(iter(events)).events[0].kv.value == b"2"
        sent_ms = store.now_ms()
        lease = store.lease_grant(30)
        keeper = store.keep_alive(lease.id, lease.ttl_s, sent_ms)
        assert store.lease_time_to_live(lease.id).granted_ttl_s == 30
        keeper.close()
        store.lease_revoke(lease.id)
        assert store.delete(b"a").deleted == 1
        assert store.get_one(b"a") is None
        assert store.txn((), ()).succeeded
        assert store.status().version
    with pytest.raises(ClientClosed):
        store.get(b"a")


def test_addresses_that_mean_nothing_are_refused() -> None:
    for url in ("http://h:1", "etcd://", "etcd://h:port", "etcd://h/path", "embedded://", "etcd://h?x=1", "nonsense"):
        with pytest.raises(InvalidArgument):
            parse_url(url)


def test_addresses_are_taken_apart() -> None:
    url, options = parse_url("etcds://me:p%40ss@h1,[::1]:99,h3:7?namespace=/a/&timeout=3s&ca=/x.pem")
    assert url.endpoints == ("h1:2379", "[::1]:99", "h3:7")
    assert (options.user, options.password) == ("me", "p@ss")
    assert (options.namespace, options.timeout_s, options.ca) == (b"/a/", 3.0, "/x.pem")


async def test_a_blocked_loop_is_not_taken_for_a_dead_endpoint(etcd: EtcdCluster) -> None:
    """The connection was made while the loop was blocked. Its timeout was due at the same moment, and won."""
    for blocked_s in (1.4, 2.2):  # it gets the time again by which it was late: enough for a busy etcd to answer
        async with await leasehold.connect(etcd.url, timeout_s=0.8) as client:
            asking = asyncio.create_task(client.get(b"key"))
            await asyncio.sleep(0)  # it waits for the connection
            time.sleep(blocked_s)  # that is the point
            await asking


def test_passwords_are_not_shown() -> None:
    for url in ("etcd://root:s3cret@h1:2379?colour=red", "etcdx://root:s3cret@h1", "etcd://root:s3:cr@et@h1/path"):
        with pytest.raises(InvalidArgument) as refused:
            parse_url(url)
        assert "cret" not in str(refused.value)
        assert "cr@et" not in str(refused.value)
        assert "root:***@h1" in str(refused.value)
    _, options = parse_url("etcd://root:s3cret@h1")
    assert options.password == "s3cret"
    assert "s3cret" not in repr(options)
