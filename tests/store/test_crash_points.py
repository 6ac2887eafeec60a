"""A crash between any two file operations of a store: it opens again, with everything that was answered."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.store.disk_model import Disk, Image, RecordingOs
from tests.store.support import opened, snapshot_written

from leasehold.base.errors import LeaseholdError
from leasehold.mvcc.model import FROM_KEY
from leasehold.store import disk
from leasehold.store.opening import open_folder
from leasehold.store.settings import StoreSettings

# Small, so that a short run has many segments and snapshots; of its frames some take the place of zeros, some do not.
SETTINGS = StoreSettings(segment_bytes=400, history_revisions=5)
WRITES = 50


async def run(path: Path, recorder: RecordingOs) -> list[bytes]:
    """Write until it is done or fails; the keys that were answered, in order."""
    answered: list[bytes] = []
    try:
        async with opened(path, SETTINGS) as client:
            lease = await client.lease_grant(600)
            for number in range(WRITES):
                key = b"key-%03d" % number
                await client.put(key, b"v" * (600 if number == 21 else 40), lease=lease.id if number % 7 == 0 else 0)
                recorder.answered(key)
                answered.append(key)
                await snapshot_written(client)
    except (LeaseholdError, OSError):
        pass
    return answered


async def keys_in(path: Path) -> set[bytes]:
    async with opened(path, SETTINGS) as client:
        return {kv.key for kv in (await client.get(b"\0", FROM_KEY)).kvs}


def lay_out(image: Image, path: Path) -> None:
    path.mkdir()
    for name, content in image.items():
        (path / name).write_bytes(content)


async def test_a_crash_between_any_two_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        recorder = RecordingOs()
        patched.setattr(disk, "os", recorder)
        await run(tmp_path / "recorded", recorder)
    # Nothing needs to be synced on the way back: what is looked at is what is read.
    monkeypatch.setattr(disk, "os", RecordingOs())
    assert sum(kind == "rename" for kind, *_ in recorder.operations) >= 3  # snapshots were made
    model, answered, seen = Disk(), set[bytes](), set[tuple[object, ...]]()
    for place, operation in enumerate(recorder.operations):
        if operation[0] == "answered":
            answered.add(operation[1])
        else:
            model.do(operation)
        for image in (model.after_a_kill(), *model.after_a_power_cut()):
            state = (tuple(sorted(image.items())), len(answered))
            if state in seen:
                continue
            seen.add(state)
            path = tmp_path / f"{len(seen)}"
            lay_out(image, path)
            found = await keys_in(path)
            assert answered <= found, (place, operation, sorted(image))
            assert await keys_in(path) == found
    assert len(seen) > 300


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_a_disk_that_fails_at_any_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Nothing is answered after it, nothing answered before it is lost, and the store opens when the disk is mended."""
    with monkeypatch.context() as patched:
        recorder = RecordingOs()
        patched.setattr(disk, "os", recorder)
        await run(tmp_path / "whole", recorder)
    operations = sum(kind != "answered" for kind, *_ in recorder.operations)
    for fail_at in range(operations):
        path = tmp_path / f"{fail_at}"
        with monkeypatch.context() as patched:
            failing = RecordingOs(fail_at=fail_at, code=code)
            patched.setattr(disk, "os", failing)
            answered = await run(path, failing)
        assert len(answered) < WRITES or fail_at > operations * 0.8
        assert set(answered) <= await keys_in(path)


async def test_what_a_killed_process_left_unsynced_is_synced_before_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as client:
        await client.put(b"a")
    recorder = RecordingOs()
    monkeypatch.setattr(disk, "os", recorder)
    engine = open_folder(tmp_path)
    try:
        assert ("sync", "00000001.log") in recorder.operations
    finally:
        engine.close()
