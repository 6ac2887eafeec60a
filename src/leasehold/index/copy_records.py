"""Applying what was decided about copies and moves, and about the tasks that ask clients for them."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.base.codes import TaskStatus
from leasehold.base.limits import tasks_max
from leasehold.index.model import COMPLETE, CopyJob, Task
from leasehold.index.put_records import PutRecords
from leasehold.index.records import CopyEnd, CopyRevoke, CopyStart, TaskCreate, TaskDone
from leasehold.index.settings import IndexSettings


def task_id(epoch: int, n: int) -> bytes:
    """A task is named by the record that made it."""
    return epoch.to_bytes(8, "little") + n.to_bytes(8, "little")


class CopyRecords(PutRecords):
    """One method a record."""

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int]) -> None:
        super().__init__(settings, choose)
        self.tasks: dict[bytes, Task] = {}
        self.open_tasks: dict[bytes, dict[bytes, Task]] = {}  # those that have not ended, by the client that does them

    def _apply_copy_start(self, n: int, record: CopyStart) -> None:
        if self._covers(n, record.key):
            entry = self.lookup(record.tenant, record.key)
            self._displaced_since(n, record.extents, record.size or (entry.size if entry is not None else 1))
            return
        entry = self._version(n, record.tenant, record.key, record.put_seq, "copy_start")
        if entry is None:
            return
        now = record.at_ms + self.offset
        job = CopyJob(
            record.tenant, record.key, record.put_seq, entry.size, record.client, n, now, record.source,
        record.moves, () )  # fmt: skip
        job.replicas = self._take(n, job, record.extents)
        self.copies[(record.tenant, record.key)] = job

    def _job(self, n: int, record: CopyEnd | CopyRevoke, what: str) -> CopyJob | None:
        if self._covers(n, record.key):
            return None
        job = self.copies.get((record.tenant, record.key))
        if job is None or job.started_n != record.started:
            self._missing(n, what)
            return None
        del self.copies[(record.tenant, record.key)]
        return job

    def _apply_copy_end(self, n: int, record: CopyEnd) -> None:
        job = self._job(n, record, "copy_end")
        entry = self.lookup(record.tenant, record.key)
        if job is None or entry is None or entry.put_seq != job.put_seq:
            return
        for replica in job.replicas:
            replica.status = COMPLETE
            replica.segment.space.owners[replica.offset] = entry
        moved = [replica for replica in entry.replicas if replica.id == job.moves]
        entry.replicas = tuple(replica for replica in entry.replicas if replica.id != job.moves) + job.replicas
        entry.changed_n = n
        if not entry.replicas and self.homeless is not None:
            self.homeless.append(entry)  # somebody in a later slice has the new place already
        self._let_go(moved, entry.size, n, record.at_ms + self.offset, record.quarantine_ms)

    def _apply_copy_revoke(self, n: int, record: CopyRevoke) -> None:
        job = self._job(n, record, "copy_revoke")
        if job is not None:
            self._let_go(job.replicas, job.size, n, record.at_ms + self.offset, record.quarantine_ms)

    # --- tasks ---

    def _apply_task_create(self, n: int, record: TaskCreate) -> None:
        if self._covers_keyless(n):
            return
        name = task_id(self.epoch, n)
        if len(self.tasks) >= tasks_max:  # here, so that every node forgets the same (P6)
            self.tasks = {each: task for each, task in self.tasks.items() if task.status < TaskStatus.FAILED}
        self._add_task(Task(
            name, record.kind, record.tenant, record.key, record.source, record.targets, record.client,
            record.created_ms, record.created_ms, TaskStatus.PENDING, "",
        ))  # fmt: skip

    def _add_task(self, task: Task) -> None:
        self.tasks[task.id] = task
        if task.status < TaskStatus.FAILED:
            self.open_tasks.setdefault(task.client, {})[task.id] = task

    def _apply_task_done(self, n: int, record: TaskDone) -> None:
        if self._covers_keyless(n):
            return
        task = self.tasks.get(record.task)
        if task is not None:
            task.status, task.message, task.updated_ms = record.status, record.message, record.at_ms
            still_open = self.open_tasks.get(task.client, {})
            still_open.pop(task.id, None)
            if not still_open:
                self.open_tasks.pop(task.client, None)
