"""One real etcd, one name: Python, `etcdctl` and Go's own package exclude each other, in the order of their keys."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.concurrency.go_programs import built_with_go
from tests.concurrency.helpers import waiters

from leasehold.concurrency import Election, Mutex, Session
from leasehold.coord.api import Coord
from leasehold.mvcc.model import EventType, prefix_end
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.process import START_TIMEOUT_S
from leasehold.testing.waiting import until

ROUNDS_EACH = 20  # of five contenders of each kind


def etcdctl(cluster: EtcdCluster) -> list[str]:
    """With a long timeout: the default gives up after 2 s without a connection."""
    binary = str(Path(cluster.binary.path).parent / "etcdctl")
    return [binary, f"--endpoints={','.join(cluster.endpoints)}", "--dial-timeout=60s", "--command-timeout=60s"]


def enter_alone(folder: Path, key: str) -> None:
    """The body of every contender: record its key, and detect another contender inside."""
    try:
        (folder / "inside").mkdir()
    except FileExistsError:
        key = f"VIOLATION {key}"
    with (folder / "log").open("a") as log:
        log.write(key + "\n")


def leave(folder: Path) -> None:
    (folder / "inside").rmdir()


ALONE_SH = """mkdir "$1/inside" || echo VIOLATION >> "$1/log"; echo "$ETCD_LOCK_KEY" >> "$1/log"; rmdir "$1/inside" """


@asynccontextmanager
async def creations(coord: Coord, name: str) -> AsyncIterator[dict[str, int]]:
    """The create revision of every key that was ever made under `name`."""
    prefix = name.encode() + b"/"
    created: dict[str, int] = {}

    async def follow() -> None:
        async for batch in stream:
            for event in batch.events:
                if event.type is EventType.PUT:
                    created[event.kv.key.decode()] = event.kv.create_revision

    async with coord.watch(prefix, prefix_end(prefix)) as stream:
        await stream.ready()
        following = asyncio.create_task(follow())
        yield created
        following.cancel()


def entered(folder: Path) -> list[str]:
    """The keys of the holders of the lock, in order."""
    keys = (folder / "log").read_text().split("\n")[:-1]
    assert not [line for line in keys if "VIOLATION" in line]
    return keys


def check_story(folder: Path, created: dict[str, int], rounds: int) -> None:
    keys = entered(folder)
    assert len(keys) == rounds
    revisions = [created[key] for key in keys]
    assert revisions == sorted(revisions), "not in the order of the keys"


async def python_locks(coord: Coord, name: str, folder: Path, rounds: int) -> None:
    for _ in range(rounds):
        async with Session.open(coord, ttl_s=20) as session, Mutex(session, name) as held:
            enter_alone(folder, held.key.decode())
            leave(folder)


async def python_leads(coord: Coord, name: str, folder: Path, rounds: int) -> None:
    for _ in range(rounds):
        async with Session.open(coord, ttl_s=20) as session, Election(session, name).lead("python") as held:
            enter_alone(folder, held.key.decode())
            leave(folder)


async def contend(
    coord: Coord, name: str, folder: Path, ours: Callable[[], Awaitable[None]], theirs: Callable[[], Awaitable[None]]
) -> dict[str, int]:
    async with creations(coord, name) as created:
        await asyncio.gather(*(ours() for _ in range(5)), *(theirs() for _ in range(5)))
        await until(lambda: set(entered(folder)) <= created.keys(), "the watch has reported all of them")
    return created


@pytest.mark.timeout(300)
async def test_etcdctl_lock_and_python_share_one_lock(
    etcd: EtcdCluster, etcd_coord: Coord, name: str, tmp_path: Path
) -> None:
    """200 rounds, five contenders of each kind."""

    async def theirs() -> None:
        for _ in range(ROUNDS_EACH):
            child = await asyncio.create_subprocess_exec(
                *etcdctl(etcd), "lock", name, "--", "sh", "-c", ALONE_SH, "sh", str(tmp_path)
            )
            assert await child.wait() == 0

    created = await contend(
        etcd_coord, name, tmp_path, lambda: python_locks(etcd_coord, name, tmp_path, ROUNDS_EACH), theirs
    )
    check_story(tmp_path, created, 10 * ROUNDS_EACH)


@pytest.mark.timeout(300)
async def test_etcdctl_elect_and_python_share_one_election(
    etcd: EtcdCluster, etcd_coord: Coord, name: str, tmp_path: Path
) -> None:
    """200 rounds: `etcdctl elect` prints when it leads, and leads until it is stopped."""

    async def theirs() -> None:
        for _ in range(ROUNDS_EACH):
            child = await asyncio.create_subprocess_exec(
                *etcdctl(etcd), "elect", name, "etcdctl", stdout=asyncio.subprocess.PIPE
            )
            assert child.stdout is not None
            key = (await child.stdout.readline()).decode().strip()
            enter_alone(tmp_path, key)
            leave(tmp_path)
            child.send_signal(signal.SIGINT)
            await child.wait()

    created = await contend(
        etcd_coord, name, tmp_path, lambda: python_leads(etcd_coord, name, tmp_path, ROUNDS_EACH), theirs
    )
    check_story(tmp_path, created, 10 * ROUNDS_EACH)


@pytest.fixture(scope="session")
def go_contender() -> Path:
    """The Go program that contends, with the real package."""
    return built_with_go(".")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["lock", "elect"])
async def test_go_and_python_share(
    etcd: EtcdCluster, etcd_coord: Coord, name: str, tmp_path: Path, go_contender: Path, kind: str
) -> None:
    """200 rounds with the real package, five contenders of each kind."""

    async def theirs() -> None:
        child = await asyncio.create_subprocess_exec(
            str(go_contender), ",".join(etcd.endpoints), kind, name, str(tmp_path), str(ROUNDS_EACH)
        )
        assert await child.wait() == 0

    ours = python_locks if kind == "lock" else python_leads
    created = await contend(etcd_coord, name, tmp_path, lambda: ours(etcd_coord, name, tmp_path, ROUNDS_EACH), theirs)
    check_story(tmp_path, created, 10 * ROUNDS_EACH)


async def test_etcdctl_waits_for_a_python_holder(etcd: EtcdCluster, etcd_coord: Coord, name: str) -> None:
    """And the other way round: the key that `etcdctl` prints is in Python's way."""
    async with Session.open(etcd_coord) as session:
        async with Mutex(session, name):
            child = await asyncio.create_subprocess_exec(*etcdctl(etcd), "lock", name, stdout=asyncio.subprocess.PIPE)
            await waiters(etcd_coord, name, 2)
        assert child.stdout is not None
        key = (await asyncio.wait_for(child.stdout.readline(), START_TIMEOUT_S)).strip()
        assert key.startswith(f"{name}/".encode())
        waiting = asyncio.create_task(Mutex(session, name).lock(timeout_s=START_TIMEOUT_S))
        await asyncio.wait({waiting}, timeout=0.1)
        assert not waiting.done()
        child.send_signal(signal.SIGINT)
        await waiting
        await child.wait()
