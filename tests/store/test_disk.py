"""The store's files: what is written is there again, what is torn is cut, what is damaged is refused untouched."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from tests.store.support import crash, opened, snapshot_written

from leasehold.base.errors import InvalidArgument, UnknownOutcome
from leasehold.mvcc.errors import Compacted, NoSpace
from leasehold.mvcc.model import FROM_KEY, KeyValue, Put
from leasehold.mvcc.records import Clocked, Committed, LeaseRenewed
from leasehold.store.client import LocalClient
from leasehold.store.disk import AHEAD_BYTES, Folder
from leasehold.store.errors import StoreClosed, StoreDamaged, StoreFailed, StoreInUse
from leasehold.store.log_frames import HEADER_BYTES, Frames, encode_frame
from leasehold.store.opening import open_folder, restore
from leasehold.store.settings import StoreSettings


async def everything(client: LocalClient) -> tuple[KeyValue, ...]:
    return (await client.get(b"\0", FROM_KEY)).kvs


async def fill(client: LocalClient) -> None:
    for number in range(100):
        await client.put(b"%d" % number, bytes(20_000))


def segment(path: Path) -> Path:
    (found,) = path.glob("*.log")
    return found


def frames_end(log: bytes) -> int:
    frames = Frames(log, log.find(b"\n") + 1)
    for _ in frames:
        pass
    return frames.end


async def test_what_was_answered_is_there_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as client:
        for number in range(20):
            await client.put(b"%02d" % number, b"v")
        await client.delete(b"03")
        await client.compact(10)
        before, header = await everything(client), (await client.get(b"x")).header
    async with opened(tmp_path) as client:
        assert await everything(client) == before
        assert (await client.get(b"x")).header == header
        with pytest.raises(Compacted):
            await client.get(b"x", revision=9)
        assert (await client.get(b"\0", FROM_KEY, revision=10)).count == 9


async def test_a_crash_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    await client.put(b"answered")
    crash(engine)
    async with opened(tmp_path) as client:
        assert await client.get_one(b"answered") is not None


@pytest.mark.parametrize("left", [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 5])
async def test_a_torn_tail_is_cut(tmp_path: Path, left: int) -> None:
    async with opened(tmp_path) as client:
        await client.put(b"a")
    path = segment(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + encode_frame(99, [Clocked(10**9)])[:left])
    async with opened(tmp_path) as client:
        assert await client.get_one(b"a") is not None
        await client.put(b"b")
    assert path.read_bytes().startswith(whole)
    async with opened(tmp_path) as client:
        assert [kv.key for kv in await everything(client)] == [b"a", b"b"]


async def test_zeros_at_the_end_are_cut(tmp_path: Path) -> None:
    """The possible remains of a write at a power cut."""
    async with opened(tmp_path) as client:
        await client.put(b"a")
    with segment(tmp_path).open("ab") as file:
        file.write(bytes(5000))
    async with opened(tmp_path) as client:
        assert await client.get_one(b"a") is not None


async def test_zeros_stand_ahead_of_what_is_written_as_long_as_the_store_is_open(tmp_path: Path) -> None:
    """Writes that only take the place of zeros are synced faster; an idle store has a modest number of them."""
    async with opened(tmp_path) as client:
        await client.put(b"a", b"a value")
        first = segment(tmp_path).read_bytes()
        assert len(first) == AHEAD_BYTES
        await client.put(b"b", bytes(10))
        written = segment(tmp_path).read_bytes()
        assert len(written) == AHEAD_BYTES
        assert written.startswith(first[: frames_end(first)])
        for number in range(10):
            await client.put(b"%d" % number, bytes(30_000))
        assert segment(tmp_path).stat().st_size == 2 * AHEAD_BYTES
    data = segment(tmp_path).read_bytes()
    assert frames_end(data) == len(data) < 2 * AHEAD_BYTES


async def test_what_is_loaded_in_large_pieces_is_not_written_twice(tmp_path: Path) -> None:
    async with opened(tmp_path) as client:
        await client.put(b"a", bytes(AHEAD_BYTES))
        size = segment(tmp_path).stat().st_size
        assert size < AHEAD_BYTES + 500
        await client.put(b"b")
        assert segment(tmp_path).stat().st_size == 2 * AHEAD_BYTES


async def test_zeros_that_a_killed_process_left_are_no_news(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = open_folder(tmp_path)
    await LocalClient(engine).put(b"a")
    crash(engine)
    assert segment(tmp_path).stat().st_size == AHEAD_BYTES
    async with opened(tmp_path) as client:
        assert segment(tmp_path).stat().st_size < 500
        await client.put(b"b")
    async with opened(tmp_path) as client:
        assert [kv.key for kv in await everything(client)] == [b"a", b"b"]
    assert "unfinished" not in capsys.readouterr().out


async def crashed_after_a_put(folder: Path) -> tuple[Path, int]:
    """The log of a store that has put `a`, and the number of its next frame."""
    engine = open_folder(folder)
    await LocalClient(engine).put(b"a")
    number = engine._log._segment.number  # type: ignore[union-attr]  # a store on disk has a log
    crash(engine)
    return segment(folder), number


async def test_a_torn_write_among_zeros_is_cut(tmp_path: Path) -> None:
    """In whatever order its sectors reached the disk: also the last ones alone, which may look like frames."""
    path, number = await crashed_after_a_put(tmp_path)
    whole = path.read_bytes()
    end = frames_end(whole)
    other = b"".join(encode_frame(each, [Clocked(1)]) for each in range(500, 600))
    frame = encode_frame(number, [Committed(9, ((b"copy", other, 2, 2, 1, 0),))])
    for lost in (slice(0, 500), slice(0, 1500), slice(700, 1300), slice(1500, len(frame))):
        torn = bytearray(frame)
        torn[lost] = bytes(len(frame[lost]))
        path.write_bytes(whole[:end] + torn + whole[end + len(torn) :])
        async with opened(tmp_path) as client:
            assert [kv.key for kv in await everything(client)] == [b"a"]


async def test_a_frame_among_zeros_that_may_be_a_later_one_is_not_cut(tmp_path: Path) -> None:
    path, number = await crashed_after_a_put(tmp_path)
    data = bytearray(path.read_bytes())
    place = frames_end(bytes(data)) + 100
    frame = encode_frame(number + 1, [Clocked(1)])
    data[place : place + len(frame)] = frame
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match=f"good again at byte {place}"):
        open_folder(tmp_path)
    assert path.read_bytes() == data


async def test_a_file_of_which_only_the_beginning_was_written_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "00000001.log").write_bytes(b"leasehold st")
    async with opened(tmp_path) as client:
        await client.put(b"a")
    async with opened(tmp_path) as client:
        assert await client.get_one(b"a") is not None


@pytest.mark.parametrize("where", [0.02, 0.3, 0.5, 0.9])
async def test_damage_in_the_middle_is_refused_and_left_as_it_is(tmp_path: Path, where: float) -> None:
    async with opened(tmp_path) as client:
        for number in range(50):
            await client.put(b"%d" % number, b"value")
    path = segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 0x55
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"[Nn]othing was changed"):
            open_folder(tmp_path)
    assert path.read_bytes() == data


async def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as client:
        await client.put(b"a")
    os.rename(segment(tmp_path), tmp_path / "00000003.log")
    (tmp_path / "00000001.log").write_bytes((tmp_path / "00000003.log").read_bytes())
    with pytest.raises(StoreDamaged, match=r"segment 00000002\.log is missing"):
        open_folder(tmp_path)


async def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00000001.log").write_bytes(b"my thesis\n" * 100)
    with pytest.raises(StoreDamaged, match="not a file of a Leasehold store"):
        open_folder(tmp_path)


async def test_two_owners_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(StoreInUse, match=f"pid {os.getpid()}"):
            Folder(tmp_path)
    Folder(tmp_path).close()


async def test_the_log_is_kept_short_by_snapshots(tmp_path: Path) -> None:
    settings = StoreSettings(segment_bytes=64 * 1024, history_revisions=100, history_bytes=64 * 1024)
    async with opened(tmp_path, settings) as client:
        grant = await client.lease_grant(600)
        for number in range(2_000):
            await client.put(b"%d" % (number % 10), bytes(500), lease=grant.id)
            if number % 500 == 0:
                await client.put(b"tick-%d" % number)
            if number % 50 == 0:
                await snapshot_written(client)
        before = await everything(client)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 600 * 1024
    assert list(tmp_path.glob("*.snapshot"))
    async with opened(tmp_path, settings) as client:
        assert await everything(client) == before
        held = (await client.lease_time_to_live(grant.id, keys=True)).keys
        assert held == tuple(b"%d" % number for number in range(10))


async def test_history_is_bounded(tmp_path: Path) -> None:
    settings = StoreSettings(history_revisions=200)
    async with opened(tmp_path, settings) as client:
        for _ in range(1_500):
            await client.put(b"a")
        with pytest.raises(Compacted):
            await client.get(b"a", revision=2)
        status = await client.status()
        assert status.db_size < 1_300 * 300


async def test_a_full_store_reads_deletes_and_recovers(tmp_path: Path) -> None:
    settings = StoreSettings(quota_bytes=1024 * 1024)
    async with opened(tmp_path, settings) as client:
        with pytest.raises(NoSpace):
            await fill(client)
        count = (await client.get(b"\0", FROM_KEY, count_only=True)).count
        assert 45 <= count <= 55
        await client.delete(b"0")
        await client.put(b"0", bytes(20_000))


async def test_a_disk_that_fails_is_reported_and_closes_the_store(tmp_path: Path) -> None:
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    await client.put(b"a")
    watch = client.watch(b"a")
    log = engine._log
    assert log is not None
    os.close(log._segment._file)  # type: ignore[attr-defined]  # the disk goes away
    with pytest.raises(UnknownOutcome):
        await client.put(b"b")
    with pytest.raises(StoreFailed):
        await client.get(b"a")
    with pytest.raises(StoreFailed):
        await anext(watch)


async def test_a_closed_store_refuses(tmp_path: Path) -> None:
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    engine.close()
    with pytest.raises(StoreClosed):
        await client.put(b"a")


async def test_restore_needs_a_new_directory(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as client:
        await client.put(b"a")
    with pytest.raises(StoreDamaged):
        restore(segment(tmp_path / "a"), tmp_path / "b")
    assert not list((tmp_path / "b").glob("*.snapshot")) if (tmp_path / "b").exists() else True


def test_frames_know_a_whole_frame_after_damage() -> None:
    one, two = encode_frame(1, [Clocked(1)]), encode_frame(2, [Clocked(2)])
    frames = Frames(b"xx" + one + two)
    assert list(frames) == []
    assert frames.next_whole() == 2
    torn = Frames(one + two[:-1])
    assert [frame.number for frame in torn] == [1]
    assert torn.torn
    assert torn.next_whole() is None


async def rotated(path: Path) -> None:
    """A store with a snapshot."""
    settings = StoreSettings(segment_bytes=1_000)
    async with opened(path, settings) as client:
        for number in range(20):
            await client.put(b"%d" % number, bytes(100))
    assert list(path.glob("*.snapshot"))


async def test_a_missing_snapshot_is_refused(tmp_path: Path) -> None:
    await rotated(tmp_path)
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    with pytest.raises(StoreDamaged, match=r"snapshot \d+.snapshot is missing"):
        open_folder(tmp_path)


async def test_a_snapshot_without_its_log_is_refused(tmp_path: Path) -> None:
    await rotated(tmp_path)
    for log in tmp_path.glob("*.log"):
        log.unlink()
    with pytest.raises(StoreDamaged, match=r"log segment \d+.log is missing"):
        open_folder(tmp_path)


async def test_files_of_two_stores_are_not_mixed(tmp_path: Path) -> None:
    await rotated(tmp_path / "a")
    async with opened(tmp_path / "b") as client:
        await client.put(b"b")
    segment(tmp_path / "b").replace(max((tmp_path / "a").glob("*.log")))
    with pytest.raises(StoreDamaged, match="belongs to another store"):
        open_folder(tmp_path / "a")


async def test_a_whole_frame_that_cannot_be_read_is_not_cut(tmp_path: Path) -> None:
    """It was answered, by a newer version of this program: it is no torn end."""
    async with opened(tmp_path) as client:
        await client.put(b"a")
    path = segment(tmp_path)
    payload = msgspec.msgpack.encode([[99, "a record of the future"]])
    number = [frame.number for frame in Frames(path.read_bytes(), path.read_bytes().find(b"\n") + 1)][-1] + 1
    facts = struct.pack("<4sQII", b"LHf1", number, len(payload), crc32(payload))
    content = path.read_bytes() + facts + struct.pack("<I", crc32(facts)) + payload
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match="the version that wrote it"):
        open_folder(tmp_path)
    assert path.read_bytes() == content


async def test_a_torn_write_of_a_value_that_looks_like_a_log_is_cut(tmp_path: Path) -> None:
    async with opened(tmp_path) as client:
        await client.put(b"a")
    path = segment(tmp_path)
    log = b"".join(encode_frame(number, [Clocked(1)]) for number in range(50, 60))
    value = (b"copy", log, 2, 2, 1, 0)
    with path.open("ab") as file:
        file.write(encode_frame(99, [Committed(9, (value,))])[:-3])
    async with opened(tmp_path) as client:
        assert [kv.key for kv in await everything(client)] == [b"a"]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.put(b"a", "text"),
        lambda client: client.put("a", b""),
        lambda client: client.put(b"a", bytearray(b"v")),
        lambda client: client.get("a"),
        lambda client: client.txn(success=[Put(b"a", "text")]),  # type: ignore[arg-type]  # that is the point
        lambda client: client.lease_grant(10, 1 << 63),
        lambda client: client.lease_grant(10.0),
        lambda client: client.put(b"a", b"", lease=5.0),
        lambda client: client.compact(2.0),
    ],
)
async def test_what_could_not_be_read_back_is_not_taken(tmp_path: Path, call: Callable[[Any], Awaitable[Any]]) -> None:
    async with opened(tmp_path) as client:
        await client.lease_grant(10, 5)
        await client.put(b"a")
        with pytest.raises(InvalidArgument):
            await call(client)
        await client.put(b"b", timeout_s=5)
    async with opened(tmp_path) as client:
        assert [kv.key for kv in await everything(client)] == [b"a", b"b"]


async def test_any_error_in_writing_is_reported(tmp_path: Path) -> None:
    """Not only errors of the disk: no caller may be left waiting."""
    engine = open_folder(tmp_path)
    client = LocalClient(engine)
    engine._pending.append(LeaseRenewed(1 << 70, 0))  # cannot be encoded
    with pytest.raises(UnknownOutcome):
        await client.put(b"a", timeout_s=5)
    with pytest.raises(StoreFailed):
        await client.put(b"b")
    engine.close()


async def test_history_is_bounded_also_when_groups_are_large(tmp_path: Path) -> None:
    async with opened(tmp_path, StoreSettings(history_revisions=100)) as client:
        for _ in range(6):
            await asyncio.gather(*(client.put(b"a") for _ in range(4_000)))
        store = client.engine.store
        assert store.revision - store.compact_revision < 10_000


FORKING = """
import asyncio, os, sys
from pathlib import Path
import pytest
from leasehold.store.client import LocalClient
from leasehold.store.errors import StoreInUse
from leasehold.store.opening import open_folder
from leasehold.coord.errors import ForkedClient

path = Path(sys.argv[1])
engine = open_folder(path)
client = LocalClient(engine)
asyncio.run(client.put(b"a"))
(log,) = path.glob("*.log")
before = log.read_bytes()
child = os.fork()
with pytest.raises(StoreInUse):
    open_folder(path)  # the parent has it open
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert log.read_bytes() == before
    asyncio.run(client.put(b"b"))
else:
    with pytest.raises(ForkedClient):
        asyncio.run(client.put(b"child"))
engine.close()
"""


def test_a_store_from_before_a_fork_is_the_parents(tmp_path: Path) -> None:
    """In a process of its own: whatever other tests have left in this one is not forked along."""
    command = [sys.executable, "-c", FORKING, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
