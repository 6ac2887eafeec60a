"""The buffers by themselves: on the disk, and in a real Redis."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.base.errors import Unavailable
from leasehold.coord.connect import connect
from leasehold.ha.effects import DrainBuffer
from leasehold.ha.events import BufferFailed, NodeEvent
from leasehold.node.buffer.disk import BufferFull, DiskBuffer, Quarantined
from leasehold.node.buffer.redis import RedisBuffer, Sealed
from leasehold.node.settings import NodeConfig, NodeSettings
from leasehold.node.worker.persistence import Persistence
from leasehold.testing.ports import free_ports
from leasehold.testing.redis import RedisProcess
from leasehold.testing.waiting import until

pytestmark = pytest.mark.xdist_group("buffers")  # its processes are shared by the module


def test_another_process_reads_the_pushed_batches_from_the_disk_buffer(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path)
    buffer.push(7, 3, b"one")
    buffer.push(7, 9, b"two")
    again = DiskBuffer(tmp_path)
    assert again.epochs() == [7]
    assert list(again.read(7)) == [(3, b"one"), (9, b"two")]


def test_an_incomplete_frame_in_the_disk_buffer_is_ignored(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path)
    buffer.push(7, 3, b"one")
    buffer.push(7, 9, b"two")
    path = next(tmp_path.iterdir())
    os.truncate(path, path.stat().st_size - 1)
    assert list(DiskBuffer(tmp_path).read(7)) == [(3, b"one")]


def test_committed_batches_leave_the_disk_buffer_which_is_bounded(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path, bytes_max=100, file_bytes=10)
    buffer.push(7, 1, b"x" * 60)
    with pytest.raises(BufferFull):
        buffer.push(7, 2, b"x" * 60)
    buffer.forget(7, 1)
    buffer.push(7, 2, b"x" * 60)
    assert list(buffer.read(7)) == [(2, b"x" * 60)]


def test_committed_batches_empty_the_last_file_of_the_disk_buffer(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path)
    for n in range(1, 4):
        buffer.push(7, n, b"batch %d" % n)
        assert list(DiskBuffer(tmp_path).read(7)) == [(n, b"batch %d" % n)]
        buffer.forget(7, n)
        assert list(DiskBuffer(tmp_path).read(7)) == []
        assert buffer.bytes_left(led_epoch=None) == 0
    assert len(list(tmp_path.iterdir())) == 1
    buffer.push(8, 9, b"of the next epoch")
    assert list(buffer.read(8)) == [(9, b"of the next epoch")]
    buffer.drop(7)
    assert buffer.epochs() == [8]


def test_a_frame_that_could_not_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    """A later frame behind half of another could not be read."""
    buffer = DiskBuffer(tmp_path)
    buffer.push(7, 1, b"one")
    size = next(tmp_path.iterdir()).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then the write fails with an error
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            buffer.push(7, 2, b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    buffer.push(7, 2, b"two")
    assert list(DiskBuffer(tmp_path).read(7)) == [(1, b"one"), (2, b"two")]


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path_factory.mktemp("redis")) as server:
        yield server


async def test_a_sealed_epoch_rejects_pushes_and_is_drained_in_order(redis_server: RedisProcess) -> None:
    """Schedule 21: a deposed leader that still reaches Redis cannot push after its successor has sealed the epoch."""
    old, new = RedisBuffer(redis_server.url, "seal"), RedisBuffer(redis_server.url, "seal")
    await old.push(5, 1, b"one")
    await old.push(5, 4, b"two")
    assert await new.drain(before_epoch=8) == [b"one", b"two"]
    with pytest.raises(Sealed):
        await old.push(5, 6, b"late")
    await new.push(8, 9, b"mine")
    assert await new.drain(before_epoch=8) == [b"one", b"two"], "draining twice shows the same"
    await new.drop(5)
    assert await new.drain(before_epoch=8) == []
    assert await new.drain(before_epoch=9) == [b"mine"]
    await old.close()
    await new.close()


async def test_committed_batches_leave_redis(redis_server: RedisProcess) -> None:
    buffer = RedisBuffer(redis_server.url, "forget")
    for n in (2, 4, 6):
        await buffer.push(5, n, b"%d" % n)
    await buffer.forget(5, 4)
    assert await buffer.drain(before_epoch=6) == [b"6"]
    await buffer.close()


async def test_quarantined_batches_in_redis_stay_are_counted_and_can_be_read(redis_server: RedisProcess) -> None:
    buffer = RedisBuffer(redis_server.url, "aside")
    await buffer.push(5, 1, b"one")
    await buffer.push(5, 4, b"two")
    ((epoch, frames),) = await buffer.left(before_epoch=8)
    assert (epoch, frames) == (5, [(1, b"one"), (4, b"two")])
    for _ in range(2):  # an interrupted cleanup repeats it
        await buffer.quarantine(5, frames[1:])
    await buffer.drop(5)
    assert await buffer.left(before_epoch=8) == []
    assert await buffer.quarantined() == Quarantined(batches=1, bytes=3)
    assert await buffer.read_quarantined() == [(4, b"two")]
    await buffer.close()


def test_quarantined_batches_on_disk_count_towards_the_limit(tmp_path: Path) -> None:
    """P6: with too many of them acknowledgements wait for the store, and nothing is deleted to free space."""
    buffer = DiskBuffer(tmp_path, bytes_max=100)
    buffer.push(7, 1, b"x" * 60)
    path = buffer.quarantine(7, list(buffer.read(7)))
    buffer.drop(7)
    assert buffer.epochs() == []
    assert buffer.quarantined() == Quarantined(batches=1, bytes=path.stat().st_size)
    with pytest.raises(BufferFull):
        DiskBuffer(tmp_path, bytes_max=100).push(8, 2, b"x" * 60)
    path.unlink()
    DiskBuffer(tmp_path, bytes_max=100).push(8, 2, b"x" * 60)


async def test_an_unreachable_redis_raises_unavailable(redis_server: RedisProcess) -> None:
    buffer = RedisBuffer(f"redis://127.0.0.1:{free_ports(1)[0]}", "away")
    with pytest.raises(Unavailable):
        await buffer.drain(before_epoch=3)
    await buffer.close()


def test_other_files_in_the_buffer_folder_are_ignored(tmp_path: Path) -> None:
    """It stopped the draining of guardian and worker: no promotion, while the lease was kept alive."""
    buffer = DiskBuffer(tmp_path)
    buffer.push(7, 3, b"one")
    for name in ("notes.buffer", "00000000000000000007-copy.buffer"):
        (tmp_path / name).write_bytes(b"what is this?")
    again = DiskBuffer(tmp_path)
    assert again.epochs() == [7]
    assert list(again.read(7)) == [(3, b"one")]
    again.drop(7)
    assert again.epochs() == []
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_deleted_by_the_other_process_meanwhile_is_skipped(tmp_path: Path) -> None:
    """Guardian and worker share the folder: between listing and reading, the other process may have deleted a file."""
    buffer = DiskBuffer(tmp_path)
    buffer.push(7, 3, b"one")
    (tmp_path / f"{7:020d}-{9:020d}.buffer").symlink_to(tmp_path / "gone")  # it exists by name, but cannot be opened
    assert list(buffer.read(7)) == [(3, b"one")]
    assert buffer.bytes_left(None) > 0


async def test_an_unexpected_buffer_error_is_reported_to_the_waiting_promotion(
    redis_server: RedisProcess, tmp_path: Path
) -> None:
    """A foreign entry in the list: a promotion waited without end and kept its lease alive."""
    buffer = RedisBuffer(redis_server.url, "odd")
    await buffer.push(5, 1, b"one")
    await buffer._redis.rpush(buffer._list(5), b"odd")
    await buffer.close()
    config = NodeConfig(node=NodeSettings(buffer=redis_server.url, cluster="odd", data_dir=str(tmp_path)))
    events: list[NodeEvent] = []
    async with await connect("memory://") as coord:
        persistence = Persistence(config, coord, events.append, lambda name: "")
        persistence.drain(DrainBuffer(before_epoch=9))
        await until(lambda: bool(events), "the error is reported")
        assert isinstance(events[0], BufferFailed)
        await persistence.close()
