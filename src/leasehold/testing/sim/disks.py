"""Disks of storage hosts in a simulated world: files survive a restart, and notices come late or twice.

The process works as Mooncake's client does: one heartbeat after the other, a file for each object (a key that has a
file is not written again), a notice before the next heartbeat, and after a restart a report of every file it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from leasehold.base.codes import Code, ReplicaKind
from leasehold.index.disk_commands import DiskTask, Written
from leasehold.index.index import Index
from leasehold.testing.sim.callers import TENANT, Caller, are_live, blocks_of_object, blocks_of_replicas, lenders_of
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.oracle import Block, Writing
from leasehold.testing.sim.virtual_clock import Violation

if TYPE_CHECKING:
    from leasehold.testing.sim.hosts import Host

Tag = tuple[bytes, int] | None


class File(Struct, frozen=True):
    """The bytes of one object, as they were read from memory: right or wrong."""

    key: bytes
    bucket: int
    size: int
    content: tuple[Tag, ...]


class Folder:
    """The files of one storage host."""

    def __init__(self, number: int) -> None:
        self._next = (number + 1) << 32
        self.files: dict[bytes, File] = {}

    def next_bucket(self) -> int:
        self._next += 1
        return self._next


class DiskCounts:
    """How often each path was taken."""

    def __init__(self) -> None:
        self.stored = 0
        self.reads = 0  # bytes read from a file and compared
        self.replayed = 0
        self.relisted = 0  # files of an earlier process that are listed again
        self.evicted = 0
        self.promoted = 0
        self.abandoned = 0  # promotions


class Disk:
    """The disk of one storage process."""

    def __init__(self, host: Host, folder: Folder) -> None:
        self._host, self._folder = host, folder
        self._world = host.world
        self._counts = host.world.disk_counts
        self._caller: Caller = host
        self._mounted = False
        self._mount()

    @property
    def _client(self) -> bytes:
        return self._host.client

    def _later(self, low_ms: float = 50, high_ms: float = 400) -> None:
        clock = self._world.clock
        clock.after_ms(clock.random.uniform(low_ms, high_ms), self._heartbeat)

    # --- mounting ---

    def _mount(self) -> None:
        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.disks.mount(leader_ms, self._client, True)
            return Answer(reply.code, reply.after)

        def then(code: Code | None) -> None:
            if code is Code.OK:
                self._report(list(self._folder.files.values()))
            else:
                self._world.clock.after_ms(500, self._mount)

        if self._host.alive and not self._world.quiet:
            self._caller.call("mount_disk", execute, then)

    def _report(self, files: list[File]) -> None:
        """Report the files that were found."""

        def then(code: Code | None) -> None:
            self._later()

        if not files:
            self._later()
            return
        self._notify(files, then, found=True)

    # --- writing to disk ---

    def _heartbeat(self) -> None:
        if not self._host.alive or self._world.quiet:
            return
        chance = self._world.clock.random
        if chance.random() < 0.01 and self._world.faults.on:
            self._world.restart_host(self._host.number, chance.choice((100, 5_000, 15_000)))
            return
        if chance.random() < 0.06 and self._folder.files:
            self._evict(chance.choice(sorted(self._folder.files)))
            return

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.disks.offload_heartbeat(leader_ms, self._client, True)
            return Answer((reply.code, list(reply.value)), reply.after)

        def then(value: tuple[Code, list[DiskTask]] | None) -> None:
            if value is None:
                self._later()
            elif value[0] is Code.SEGMENT_NOT_FOUND:
                self._mount()
            else:
                self._offload([key for (_, key), _ in value[1]])

        self._caller.call("offload_heartbeat", execute, then)

    def _offload(self, keys: list[bytes]) -> None:
        """Write the next objects, then notify; then look for objects to read back."""
        if not keys:
            self._promote()
            return
        wanted = keys[:3]
        found: dict[bytes, tuple[tuple[Block, ...], int]] = {}

        def execute(index: Index, leader_ms: int) -> Answer | None:
            found.clear()
            after = 0
            for key in wanted:
                entry = index.reads.get(leader_ms, TENANT, key)
                if entry is None:
                    continue
                mine = [r for r in entry.replicas if r.segment.spec.id == self._host.spec.id]
                after = max(after, entry.changed_n)
                if mine:
                    found[key] = blocks_of_replicas(mine[:1], entry.size), entry.size
            return Answer(Code.OK, after)

        def then(code: Code | None) -> None:
            if not self._host.alive:
                return
            clock = self._world.clock
            pause_ms = clock.random.uniform(1, 1_500 if clock.random.random() < 0.2 else 30)
            clock.after_ms(pause_ms, self._write, wanted, dict(found), keys[3:])

        self._caller.call("offload_query", execute, then)

    def _write(self, wanted: list[bytes], found: dict[bytes, tuple[tuple[Block, ...], int]], rest: list[bytes]) -> None:
        if not self._host.alive:
            return
        memory, folder = self._world.oracle.memory, self._folder
        written, failed = [], []
        for key in wanted:
            if key not in found or key in folder.files:
                failed.append(File(key, -1, -1, ()))
                continue
            blocks, size = found[key]
            file = File(key, folder.next_bucket(), size, tuple(memory.get(block) for block in blocks))
            folder.files[key] = file
            written.append(file)

        def then(code: Code | None) -> None:
            if code is not Code.OK:  # the process deletes what it could not report, and reports that
                for file in written:
                    if folder.files.get(file.key) is file:
                        del folder.files[file.key]
                failed.extend(File(file.key, -1, -1, ()) for file in written)
            if failed:
                self._notify(failed, lambda _: self._offload(rest))
            else:
                self._offload(rest)

        if written:
            self._notify(written, then)
        else:
            then(Code.OK)

    def _notify(self, files: list[File], then: Callable[[Code | None], None], *, found: bool = False) -> None:
        world, clock = self._world, self._world.clock
        notices = [
            Written(TENANT, file.key, file.bucket, 0, len(file.key), file.size, self._host.endpoint) for file in files
        ]

        def execute(index: Index, leader_ms: int) -> Answer:
            before = index.disk.holds_of(self._client)
            objects = index.catalog.object_count + index.disk.count
            reply = index.disks.offloaded(leader_ms, self._client, notices)
            if found:
                self._counts.relisted += index.disk.holds_of(self._client) - before
            else:
                self._counts.stored += max(0, index.disk.holds_of(self._client) - before)
            if index.catalog.object_count + index.disk.count > objects + len(files):
                raise Violation("P5", "a notice created objects")
            return Answer(reply.code, reply.after)

        def again() -> None:
            if self._host.alive:
                self._counts.replayed += 1
                self._caller.call("offloaded again", execute, lambda _: None)

        self._caller.call("offloaded", execute, then)
        if clock.random.random() < 0.25 and not world.quiet:
            clock.after_ms(clock.random.uniform(100, 8_000), again)

    def _evict(self, key: bytes) -> None:
        """Delete a file, after it was reported to the master."""

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.disks.evict(leader_ms, self._client, TENANT, [key], ReplicaKind.LOCAL_DISK)
            return Answer(reply.value[0], reply.after)

        def then(code: Code | None) -> None:
            if code in (Code.OK, Code.NOT_FOUND):
                self._counts.evicted += 1
                self._folder.files.pop(key, None)
            self._later()

        self._caller.call("evict_disk", execute, then)

    # --- reading back into memory ---

    def _promote(self) -> None:
        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.disks.promotion_heartbeat(leader_ms, self._client)
            return Answer((reply.code, list(reply.value)), reply.after)

        def then(value: tuple[Code, list[DiskTask]] | None) -> None:
            if value is not None and value[1]:
                ((_, key), size) = value[1][0]
                self._start_promotion(key, size)
            else:
                self._later()

        if self._host.alive and not self._world.quiet:
            self._caller.call("promotion_heartbeat", execute, then)

    def _start_promotion(self, key: bytes, size: int) -> None:
        world, sent_us = self._world, self._world.clock.now_us
        attempts: dict[int, tuple[Writing, set[bytes]]] = {}

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.disks.promotion_start(leader_ms, self._client, TENANT, key, size, ())
            found = reply.value
            if found is None:
                return Answer((reply.code, 0), reply.after, hands_out_space=True)
            blocks, lenders = blocks_of_object(found), lenders_of(found)
            writing = Writing(key, found.put_seq, blocks, self._host.name, are_live(world, lenders))
            attempts[found.put_seq] = writing, lenders
            wait_for = 0 if "early-promotion" in world.bugs else reply.after
            return Answer((Code.OK, found.put_seq), wait_for, hands_out_space=True, about=reply.after)

        def leaving(answer: Answer) -> None:
            writing, lenders = attempts.get(answer.value[1], (None, set()))
            if writing is not None and writing.active and are_live(world, lenders):
                world.oracle.handed_out(writing)
                world.give_up_in_time(writing, sent_us)

        def then(value: tuple[Code, int] | None) -> None:
            given = attempts.pop(value[1], None) if value is not None else None
            for unused, _ in attempts.values():
                unused.active = False
            if given is None:
                self._end_promotion(key, None, failed=True)
                return
            self._fill(key, given[0])

        self._caller.call("promotion_start", execute, then, leaving)

    def _fill(self, key: bytes, writing: Writing) -> None:
        clock, file = self._world.clock, self._folder.files.get(key)
        chance, at_ms, slow = clock.random, 0.0, clock.random.random() < 0.15
        if file is None or not writing.active:
            self._end_promotion(key, writing, failed=True)
            return
        for number, block in enumerate(writing.blocks):
            at_ms += chance.uniform(0.1, 3_000 if slow else 20)
            tag = file.content[number % len(file.content)]
            if tag is not None:
                clock.after_ms(at_ms, self._fill_block, writing, block, tag)
        dice = chance.random()
        if dice < 0.1:
            clock.after_ms(at_ms + 1, self._later)  # it forgets about it
        else:
            clock.after_ms(at_ms + 1, self._end_promotion, key, writing, dice < 0.25)

    def _fill_block(self, writing: Writing, block: Block, tag: tuple[bytes, int]) -> None:
        if writing.active and self._host.alive:
            self._world.oracle.write(block, tag)

    def _end_promotion(self, key: bytes, writing: Writing | None, failed: bool) -> None:
        if not self._host.alive:
            return
        world, clock = self._world, self._world.clock
        failed = failed or writing is None or not writing.active
        if writing is not None:
            writing.active = False

        def execute(index: Index, leader_ms: int) -> Answer:
            end = index.disks.promotion_failed if failed else index.disks.promotion_end
            reply = end(leader_ms, self._client, TENANT, key)
            self._counts.promoted += not failed and reply.code is Code.OK
            self._counts.abandoned += failed
            return Answer(reply.code, reply.after)

        def then(code: Code | None) -> None:
            if code is None and not failed:
                self._end_promotion(key, None, True)
            else:
                self._later()

        def again() -> None:
            if self._host.alive:
                self._counts.replayed += 1
                self._caller.call("promotion_end again", execute, lambda _: None)

        self._caller.call("promotion_end", execute, then)
        if clock.random.random() < 0.25 and not world.quiet:
            clock.after_ms(clock.random.uniform(100, 8_000), again)
