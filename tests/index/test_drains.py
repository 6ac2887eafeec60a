"""Drain jobs: nothing new on the segment, every object moved, resumed by a successor."""

from __future__ import annotations

from tests.index.kit import KIB, STORAGE, T, all_slices, follow, primary, put, standby

from leasehold.base.codes import TaskStatus
from leasehold.index import Code, Index, PutConfig
from leasehold.index.drains import DrainStatus
from leasehold.index.features import LEVEL_OF
from leasehold.index.records import DrainStart


def _pool(*sizes: int) -> Index:
    index = primary(sizes)
    index.set_feature_level(0, LEVEL_OF[DrainStart])
    return index


def _carry_out(index: Index, now_ms: int, good: bool = True) -> int:
    """Do as the storage client does: fetch its tasks, move, report. Returns the number of tasks."""
    tasks = index.tasks.fetch(now_ms, STORAGE, 100).value
    for task in tasks:
        if good:
            moved = index.copies.move_start(now_ms, STORAGE, task.tenant, task.key, task.source, task.targets[0])
            assert moved.code == Code.OK
            assert index.copies.move_end(now_ms, STORAGE, task.tenant, task.key).code == Code.OK
        status = TaskStatus.SUCCESS if good else TaskStatus.FAILED
        assert index.tasks.finish(now_ms, STORAGE, task.id, status, "").code == Code.OK
    return len(tasks)


def _status(index: Index, job: bytes) -> DrainStatus:
    progress = index.draining.query(0, job).value
    assert progress is not None
    return DrainStatus(progress.job.status)


def test_a_segment_is_emptied_a_few_objects_at_a_time() -> None:
    index, follower = _pool(64 * KIB, 64 * KIB), standby()
    for number in range(8):
        put(index, 0, b"k%d" % number, config=PutConfig(preferred_segments=("seg1",)))
    reply = index.draining.start(0, ["seg1"], ["seg2"], 3, 77)
    assert reply.code == Code.OK
    put(index, 1, b"new", config=PutConfig(preferred_segments=("seg1",)))
    now_ms, carried = 0, []
    while _status(index, reply.value) is DrainStatus.RUNNING:
        now_ms += 200
        index.work(now_ms)
        carried.append(_carry_out(index, now_ms))
    assert max(carried) == 3
    progress = index.draining.query(now_ms, reply.value).value
    assert progress is not None
    assert (progress.job.moved, progress.job.failed, progress.job.moved_bytes) == (8, 0, 32 * KIB)
    homes = {replica.segment.spec.name for entry in index.catalog.objects() for replica in entry.replicas}
    assert homes == {"seg2"}
    segment = index.space.segments.by_name.get("seg1")[0]
    assert index.drains.is_emptied(segment)
    follow(follower, index)
    assert follower.drains.jobs == index.drains.jobs
    index.check()
    follower.check()


def test_a_job_is_in_snapshots_and_a_successor_goes_on() -> None:
    index, loaded = _pool(64 * KIB, 64 * KIB), standby()
    for number in range(4):
        put(index, 0, b"k%d" % number, config=PutConfig(preferred_segments=("seg1",)))
    job = index.draining.start(0, ["seg1"], [], 1, 0).value
    index.work(200)
    assert _carry_out(index, 200) == 1
    loaded.load(index.export.keyless(), all_slices(index))
    loaded.check()
    loaded.begin(0, 2)
    now_ms = 0
    while _status(loaded, job) is DrainStatus.RUNNING:
        now_ms += 200
        loaded.work(now_ms)
        _carry_out(loaded, now_ms)
    progress = loaded.draining.query(now_ms, job).value
    assert progress is not None
    assert progress.job.moved == 4
    loaded.check()


def test_a_cancelled_job_gives_its_segment_back() -> None:
    index = _pool(64 * KIB, 64 * KIB)
    put(index, 0, b"k", config=PutConfig(preferred_segments=("seg1",)))
    job = index.draining.start(0, ["seg1"], [], 1, 0).value
    assert not index.space.segments.by_name.get("seg1")[0].placeable
    assert index.draining.cancel(0, job).code == Code.OK
    assert index.space.segments.by_name.get("seg1")[0].placeable
    assert index.draining.cancel(0, job).code == Code.NOT_NOW
    assert index.draining.cancel(0, bytes(16)).code == Code.JOB_NOT_FOUND
    index.check()


def test_a_job_waits_without_space_and_fails_after_three_moves_of_one_object() -> None:
    index = _pool(64 * KIB, 4 * KIB)
    put(index, 0, b"big", 8 * KIB, PutConfig(preferred_segments=("seg1",)))
    job = index.draining.start(0, ["seg1"], [], 1, 0).value
    index.work(200)
    progress = index.draining.query(200, job).value
    assert progress is not None
    assert (progress.blocked, progress.active) == (1, 0)
    assert index.draining.cancel(200, job).code == Code.OK
    assert index.removes.remove(200, T, b"big", True).code == Code.OK
    put(index, 201, b"small", KIB, PutConfig(preferred_segments=("seg1",)))
    job = index.draining.start(201, ["seg1"], [], 1, 0).value
    for step in range(2, 8):
        index.work(200 * step)
        _carry_out(index, 200 * step, good=False)
    assert _status(index, job) is DrainStatus.FAILED
    assert index.space.segments.by_name.get("seg1")[0].placeable


def test_bad_jobs_and_a_feature_level_that_is_too_low() -> None:
    index = _pool(64 * KIB, 64 * KIB)
    for segments, targets, concurrency in (
        ([], [], 1),
        (["seg1"], [], 0),
        (["seg1"], ["seg1"], 1),
        (["seg1"] * 2, [], 1),
    ):
        assert index.draining.start(0, segments, targets, concurrency, 0).code == Code.BAD_PARAMS
    assert index.draining.start(0, ["none"], [], 1, 0).code == Code.SEGMENT_NOT_FOUND
    assert index.draining.start(0, ["seg1"], [], 1, 0).code == Code.OK
    assert index.draining.start(0, ["seg1"], [], 1, 0).code == Code.NOT_NOW
    index.set_feature_level(0, 0)
    assert index.space.segments.by_name.get("seg1")[0].placeable
    assert index.draining.start(0, ["seg1"], [], 1, 0).code == Code.NOT_NOW
    index.check()
