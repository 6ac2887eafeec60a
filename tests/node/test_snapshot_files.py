"""Snapshots on the disk: complete or not there; a damaged one gives way to the older one."""

from __future__ import annotations

from pathlib import Path

from leasehold.ha.effects import ReadSnapshot, WriteSnapshot
from leasehold.ha.events import NodeEvent, SnapshotRead, SnapshotStored
from leasehold.node.snapshots import SnapshotFiles, unseal
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
