"""Copies and moves in a simulated world: a storage host fetches tasks, copies the bytes, and reports the result."""

from __future__ import annotations

from msgspec import Struct

from leasehold.base.codes import Code, TaskKind, TaskStatus
from leasehold.index.index import Index
from leasehold.testing.sim.callers import TENANT, Caller, are_live, blocks_of_replicas, lenders_of
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.oracle import Block, Writing


class Job(Struct, frozen=True):
    """A task as it was fetched: the task in the index keeps changing."""

    id: bytes
    kind: int
    key: bytes
    source: str
    targets: tuple[str, ...]


class Copier:
    """Executes the tasks of one storage client, one at a time."""

    def __init__(self, caller: Caller, client: bytes) -> None:
        self._caller, self._client = caller, client
        self._world = caller.world
        self._busy = False
        self._copies = 0

    def fetch(self) -> None:
        """Fetch a task, unless one is being executed."""
        if self._busy:
            return

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.tasks.fetch(leader_ms, self._client, 1)
            jobs = [Job(task.id, task.kind, task.key, task.source, task.targets) for task in reply.value]
            return Answer(jobs, reply.after)

        def then(jobs: list[Job] | None) -> None:
            if jobs and not self._busy:
                self._busy = True
                self._start(jobs[0])

        self._caller.call("fetch_tasks", execute, then)

    def _start(self, job: Job) -> None:
        world, sent_us = self._world, self._world.clock.now_us
        attempts: dict[int, tuple[Writing, set[bytes]]] = {}  # by record number: a call may be executed twice
        # As with puts: client and key identify the end of a copy, and a late one must not end the next copy.
        self._copies += 1
        client = b"%s-%d" % (self._client, self._copies)

        def execute(index: Index, leader_ms: int) -> Answer:
            if job.kind == TaskKind.MOVE:
                moving = index.copies.move_start(leader_ms, client, TENANT, job.key, job.source, job.targets[0])
                code, moved, after = moving.code, moving.value, moving.after
                found = None if moved is None or moved[1] is None else (moved[0], [moved[1]])
            else:
                reply = index.copies.copy_start(leader_ms, client, TENANT, job.key, job.source, job.targets)
                code, found, after = reply.code, reply.value, reply.after
            if found is None:
                return Answer((code, 0), after, hands_out_space=True)
            entry = index.catalog.lookup(TENANT, job.key)
            assert entry is not None
            source, targets = found
            lenders = lenders_of(entry).union(replica.segment.spec.id for replica in targets)
            blocks = blocks_of_replicas(targets, entry.size)
            sources = blocks_of_replicas([source], entry.size)
            active = are_live(world, lenders)
            attempts[after] = (
                Writing(job.key, entry.put_seq, blocks, self._caller.name, active, after, sources),
                lenders,
            )
            wait_for = 0 if "early-space" in world.bugs else after
            return Answer((code, after), wait_for, hands_out_space=True, about=after)

        def leaving(answer: Answer) -> None:
            writing, lenders = attempts.get(answer.value[1], (None, set()))
            if writing is not None and writing.active and are_live(world, lenders):
                world.oracle.handed_out(writing)
                world.give_up_in_time(writing, sent_us)

        def then(value: tuple[Code, int] | None) -> None:
            code, given = (None, None) if value is None else (value[0], attempts.pop(value[1], None))
            for unused, _ in attempts.values():
                unused.active = False  # the client never received that space
            if code is Code.OK and given is not None and given[0].blocks:
                self._copy(job, client, given[0])
                return
            if given is not None:
                given[0].active = False  # there is nothing to copy
            self._finish(job, TaskStatus.SUCCESS if code is Code.OK else TaskStatus.FAILED)

        self._caller.call(f"copy_start({job.key!r})", execute, then, leaving)

    def _copy(self, job: Job, client: bytes, writing: Writing) -> None:
        """Copy block by block. Some copiers are slow, some revoke the copy, some vanish."""
        clock = self._world.clock
        chance, at_ms, slow = clock.random, 0.0, clock.random.random() < 0.15
        for number, block in enumerate(writing.blocks):
            at_ms += chance.uniform(0.1, 3_000 if slow else 20)
            clock.after_ms(at_ms, self._copy_block, writing, writing.sources[number % len(writing.sources)], block)
        dice = chance.random()
        if dice < 0.1:
            clock.after_ms(at_ms + 1, self._vanish)
        else:
            clock.after_ms(at_ms + 1, self._end, job, client, writing, dice < 0.2)

    def _vanish(self) -> None:
        self._busy = False

    def _copy_block(self, writing: Writing, source: Block, target: Block) -> None:
        if writing.active:
            self._world.oracle.copy(source, target)

    def _end(self, job: Job, client: bytes, writing: Writing, revoke: bool) -> None:
        if not writing.active:
            self._busy = False
            return
        writing.active = False

        def execute(index: Index, leader_ms: int) -> Answer:
            if job.kind == TaskKind.MOVE:
                end = index.copies.move_revoke if revoke else index.copies.move_end
            else:
                end = index.copies.copy_revoke if revoke else index.copies.copy_end
            reply = end(leader_ms, client, TENANT, job.key)
            return Answer(reply.code, reply.after)

        def then(code: Code | None) -> None:
            good = code is Code.OK and not revoke
            self._finish(job, TaskStatus.SUCCESS if good else TaskStatus.FAILED)

        self._caller.call(f"copy_{'revoke' if revoke else 'end'}({job.key!r})", execute, then)

    def _finish(self, job: Job, status: TaskStatus) -> None:
        self._busy = False

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.tasks.finish(leader_ms, self._client, job.id, status, "")
            return Answer(reply.code, reply.after)

        if self._world.clock.random.random() < 0.9:  # some never report
            self._caller.call("finish_task", execute, lambda _: None)
