"""Readers of a simulated world: they hold leases and check the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.base.codes import Code
from leasehold.index.index import Index
from leasehold.testing.sim.callers import TENANT, Caller, are_live, blocks_of_object, lenders_of
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.oracle import Grant
from leasehold.testing.sim.virtual_clock import Violation

if TYPE_CHECKING:
    from leasehold.testing.sim.world import World


class Reader(Caller):
    """Reads keys, and checks their bytes at any time within the lease."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"reader{number}")
        # The rate of its clock may differ from the master's by the configured drift.
        self._rate = 1 + world.clock.random.uniform(-world.plan.drift, world.plan.drift) / 2
        self._next()

    def _next(self) -> None:
        if self.world.quiet:
            return
        clock = self.world.clock
        clock.after_ms(clock.random.uniform(5, self.world.think_ms / 2), self._act)

    def _act(self) -> None:
        world = self.world
        key = b"key-%02d" % world.clock.random.randrange(world.plan.keys)
        oracle, truth = world.oracle, world.oracle.truth
        shown_n, changed_n, visible = oracle.shown.get(key, 0), truth.changed.get(key, 0), truth.visible.get(key)
        on_disk_n = truth.disk_n if truth.is_on_disk(visible) else None
        sent_us = world.clock.now_us
        grants: list[Grant] = []
        lenders: set[bytes] = set()
        on_disk: list[tuple[bytes, int]] = []

        def execute(index: Index, leader_ms: int) -> Answer | None:
            found = index.reads.get(leader_ms, TENANT, key)
            if found is None:
                reply = index.reads.miss(TENANT, key)
                code, after = reply.value, reply.after
                return Answer(code, 0 if "early-miss" in world.bugs else after, about=after)
            if index.owners.unproven and index.owners.must_wait(found):
                return None
            lenders.clear()
            grants.clear()
            usable_us = int(index.settings.lease_ttl_ms * 1000 * (1 - world.plan.drift) / self._rate)
            lenders.update(lenders_of(found))
            until_us = sent_us + usable_us
            blocks = blocks_of_object(found)
            on_disk[:] = [(copy.owner, found.put_seq) for copy in index.disk.beside(found)] if index.disk.count else []
            if not blocks and not on_disk:
                raise Violation("P7", f"{key!r} (put {found.put_seq}) is answered as readable, and is nowhere")
            grants.append(Grant(key, found.put_seq, blocks, until_us, self.name, world.clock.now_us))
            return Answer(Code.OK, found.changed_n)

        def leaving(answer: Answer) -> None:
            if grants:
                if not are_live(world, lenders):
                    grants[0].until_us = 0  # also if the owner died while the answer was held
                oracle.sent_to(lenders, self.name)
                oracle.hit(key, grants[0].put_seq, shown_n, grants[0])
                for owner, put_seq in on_disk:
                    self._read_file(key, put_seq, owner)
            elif answer.value is Code.NOT_FOUND:
                oracle.missed(key, answer.after, changed_n, visible, on_disk_n)

        def then(code: Code | None) -> None:
            if code is Code.OK:
                left_us = grants[0].until_us - world.clock.now_us
                if left_us > 0:
                    for _ in range(2):
                        world.clock.after_us(world.clock.random.randrange(left_us), self._look, grants[0])
            self._next()

        self.call(f"get({key!r})", execute, then, leaving)

    def _read_file(self, key: bytes, put_seq: int, owner: bytes) -> None:
        world = self.world
        for host in world.hosts:
            file = world.folders[host.number].files.get(key)
            if host.client == owner and host.alive and file is not None:
                world.disk_counts.reads += 1
                world.oracle.read_file(key, put_seq, owner, file.content)

    def _look(self, grant: Grant) -> None:
        if self.world.clock.now_us < grant.until_us:
            self.world.oracle.read(grant)
