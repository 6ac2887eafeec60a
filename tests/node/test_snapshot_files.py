"""Snapshots on the disk: complete or not there; a damaged one gives way to the older one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
from aiohttp import web

from leasehold.ha.effects import ReadSnapshot, WriteSnapshot
from leasehold.ha.events import NodeEvent, SnapshotFailed, SnapshotRead, SnapshotStored
from leasehold.node.worker import snapshot_files
from leasehold.node.worker.snapshot_files import SnapshotFiles, unseal
from leasehold.testing.waiting import until


class Desk:
    """A folder with its snapshots, and what was told."""

    def __init__(self, folder: Path) -> None:
        self.told: list[NodeEvent] = []
        self.files = SnapshotFiles(folder, self.told.append, lambda name: "")

    async def write(self, number: int, *parts: bytes) -> None:
        for at, part in enumerate(parts):
            self.files.write(WriteSnapshot(number, part, first=at == 0, last=at == len(parts) - 1))
        await until(lambda: SnapshotStored(number) in self.told, "it is stored")

    async def read(self) -> bytes | None:
        before = len(self.told)
        self.files.read(ReadSnapshot())
        await until(lambda: len(self.told) > before, "it is read")
        answer = self.told[-1]
        assert isinstance(answer, SnapshotRead)
        return answer.raw


async def test_what_was_written_in_parts_is_read_back_whole(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert await desk.read() is None
    await desk.write(1, b"aaa", b"bbb", b"c")
    assert await desk.read() == b"aaabbbc"
    raw = await desk.files.newest_file()
    assert raw is not None
    assert unseal(raw) == b"aaabbbc"
    await desk.files.close()


async def test_the_newest_two_are_kept_and_a_damaged_one_gives_way(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number in (1, 2, 3):
        await desk.write(number, b"snapshot %d" % number)
    names = sorted(tmp_path.glob("*.lsnap"))
    assert len(names) == 2
    data = bytearray(names[-1].read_bytes())
    data[3] ^= 1
    names[-1].write_bytes(data)
    assert await desk.read() == b"snapshot 2"
    await desk.files.close()


async def test_what_a_crash_left_half_written_is_never_taken_for_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "snapshot.part").write_bytes(b"half of it")
    desk = Desk(tmp_path)
    assert await desk.read() is None
    assert not (tmp_path / "snapshot.part").exists()
    await desk.files.close()


async def test_a_copy_that_somebody_made_beside_them_is_left_alone(tmp_path: Path) -> None:
    """`cp snapshot-1.lsnap snapshot-1.old.lsnap`: there was never another snapshot after that (P6)."""
    desk = Desk(tmp_path)
    await desk.write(1, b"snapshot 1")
    old = tmp_path / "snapshot-000000000001.old.lsnap"
    old.write_bytes((tmp_path / "snapshot-000000000001.lsnap").read_bytes())
    for number in (2, 3, 4):
        await desk.write(number, b"snapshot %d" % number)
    assert await desk.read() == b"snapshot 4"
    assert [name.name for name in sorted(tmp_path.glob("*.lsnap"))] == [
        "snapshot-000000000001.old.lsnap",
        "snapshot-000000000003.lsnap",
        "snapshot-000000000004.lsnap",
    ]
    await desk.files.close()


async def test_a_full_disk_is_said_once_and_the_next_snapshot_is_stored(tmp_path: Path) -> None:
    """A snapshot has thousands of parts, and each of those after the first that failed was an error of its own."""
    desk = Desk(tmp_path)
    (tmp_path / "snapshot.part").symlink_to("/dev/full")
    with structlog.testing.capture_logs() as said:
        for at in range(50):
            desk.files.write(WriteSnapshot(1, b"x" * 10_000, first=at == 0, last=at == 49))
        await until(lambda: SnapshotFailed(1) in desk.told, "it is told")
    assert len(said) == 1
    (tmp_path / "snapshot.part").unlink()
    await desk.write(2, b"snapshot 2")
    assert await desk.read() == b"snapshot 2"
    await desk.files.close()


@asynccontextmanager
async def a_peer(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Somebody who answers at a peer's admin port."""
    app = web.Application()
    app.router.add_get("/api/snapshot", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        assert site._server is not None
        host, port = site._server.sockets[0].getsockname()  # type: ignore[attr-defined] # of an asyncio server
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


async def test_a_peer_that_never_ends_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells no length, so none can be refused beforehand: what is taken has a bound all the same (P6)."""
    monkeypatch.setattr(snapshot_files, "SNAPSHOT_BYTES_MAX", 1 << 20)
    sent = 0

    async def garbage(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        while sent < 200 << 20:
            await answer.write(b"\0" * 65_536)
            sent += 65_536
        return answer

    async with a_peer(garbage) as admin:
        desk = Desk(tmp_path)
        desk.files = SnapshotFiles(tmp_path, desk.told.append, lambda name: admin)
        desk.files.read(ReadSnapshot("peer"))
        await until(lambda: bool(desk.told), "it is told")
        await desk.files.close()
    assert desk.told == [SnapshotRead(None, "peer")]
    assert sent < 100 << 20
