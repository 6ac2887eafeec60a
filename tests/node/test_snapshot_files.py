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
from leasehold.node.access import PeerAccess
from leasehold.node.settings import NodeConfig
from leasehold.node.worker import snapshot_files
from leasehold.node.worker.snapshot_files import SnapshotFiles, unseal
from leasehold.testing.waiting import until


class Recorder:
    """A folder with its snapshots, and the reported events."""

    def __init__(self, folder: Path) -> None:
        self.events: list[NodeEvent] = []
        self.files = SnapshotFiles(folder, self.events.append, lambda name: "", PeerAccess(NodeConfig()))

    async def write(self, number: int, *parts: bytes) -> None:
        for at, part in enumerate(parts):
            self.files.write(WriteSnapshot(number, part, first=at == 0, last=at == len(parts) - 1))
        await until(lambda: SnapshotStored(number) in self.events, "it is stored")

    async def read(self) -> bytes | None:
        before = len(self.events)
        self.files.read(ReadSnapshot())
        await until(lambda: len(self.events) > before, "it is read")
        answer = self.events[-1]
        assert isinstance(answer, SnapshotRead)
        return answer.raw


async def test_a_snapshot_written_in_parts_is_read_back_whole(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    assert await recorder.read() is None
    await recorder.write(1, b"aaa", b"bbb", b"c")
    assert await recorder.read() == b"aaabbbc"
    raw = await recorder.files.newest_file()
    assert raw is not None
    assert unseal(raw) == b"aaabbbc"
    await recorder.files.close()


async def test_the_newest_two_are_kept_and_a_damaged_one_is_skipped(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for number in (1, 2, 3):
        await recorder.write(number, b"snapshot %d" % number)
    names = sorted(tmp_path.glob("*.lsnap"))
    assert len(names) == 2
    data = bytearray(names[-1].read_bytes())
    data[3] ^= 1
    names[-1].write_bytes(data)
    assert await recorder.read() == b"snapshot 2"
    await recorder.files.close()


async def test_an_incomplete_file_is_never_used_as_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "snapshot.part").write_bytes(b"half of it")
    recorder = Recorder(tmp_path)
    assert await recorder.read() is None
    assert not (tmp_path / "snapshot.part").exists()
    await recorder.files.close()


async def test_files_with_other_names_are_ignored(tmp_path: Path) -> None:
    """`cp snapshot-1.lsnap snapshot-1.old.lsnap`: no snapshot was stored after that (P6)."""
    recorder = Recorder(tmp_path)
    await recorder.write(1, b"snapshot 1")
    old = tmp_path / "snapshot-000000000001.old.lsnap"
    old.write_bytes((tmp_path / "snapshot-000000000001.lsnap").read_bytes())
    for number in (2, 3, 4):
        await recorder.write(number, b"snapshot %d" % number)
    assert await recorder.read() == b"snapshot 4"
    assert [name.name for name in sorted(tmp_path.glob("*.lsnap"))] == [
        "snapshot-000000000001.old.lsnap",
        "snapshot-000000000003.lsnap",
        "snapshot-000000000004.lsnap",
    ]
    await recorder.files.close()


async def test_a_full_disk_is_logged_once_and_the_next_snapshot_is_stored(tmp_path: Path) -> None:
    """A snapshot has thousands of parts, and each part after the first failure used to log an error."""
    recorder = Recorder(tmp_path)
    (tmp_path / "snapshot.part").symlink_to("/dev/full")
    with structlog.testing.capture_logs() as lines:
        for at in range(50):
            recorder.files.write(WriteSnapshot(1, b"x" * 10_000, first=at == 0, last=at == 49))
        await until(lambda: SnapshotFailed(1) in recorder.events, "the result is reported")
    assert len(lines) == 1
    assert "No space left" in recorder.files.problem
    (tmp_path / "snapshot.part").unlink()
    await recorder.write(2, b"snapshot 2")
    assert await recorder.read() == b"snapshot 2"
    assert not recorder.files.problem
    await recorder.files.close()


@asynccontextmanager
async def a_peer(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """A server at a peer's admin port."""
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


async def test_an_endless_snapshot_of_a_peer_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends no length, so it cannot be rejected beforehand: the size read is bounded all the same (P6)."""
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
        recorder = Recorder(tmp_path)
        recorder.files = SnapshotFiles(tmp_path, recorder.events.append, lambda name: admin, PeerAccess(NodeConfig()))
        recorder.files.read(ReadSnapshot("peer"))
        await until(lambda: bool(recorder.events), "the result is reported")
        await recorder.files.close()
    assert recorder.events == [SnapshotRead(None, "peer")]
    assert sent < 100 << 20
