"""Storage hosts of a simulated world: they lend memory, and copy objects between them on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.base.codes import ClientStatus, Code
from leasehold.index.index import Index
from leasehold.index.model import SegmentSpec
from leasehold.testing.sim.callers import Caller
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.copiers import Copier
from leasehold.testing.sim.disks import Disk
from leasehold.testing.sim.plan import BASE, BLOCK

if TYPE_CHECKING:
    from leasehold.testing.sim.world import World


class Host(Caller):
    """A storage client: lends one segment, pings, mounts again on request, and executes its tasks."""

    def __init__(self, world: World, number: int, incarnation: int, *, mounted: bool = False) -> None:
        """With `mounted` it was mounted at a master whose pool was adopted: it pings."""
        super().__init__(world, f"host{number}")
        self.number = number
        self.endpoint = f"host{number}:9000"
        self.client = b"client-%d-%d" % (number, incarnation)
        size = world.plan.segment_blocks * BLOCK
        self.spec = SegmentSpec(b"seg-%d-%d" % (number, incarnation), f"host{number}", BASE, size, self.endpoint, "tcp")
        self.mounted = False
        self._copier = Copier(self, self.client)
        if mounted:
            self._ping()
        else:
            self._mount()
        if world.folders:
            self.disk = Disk(self, world.folders[number])

    def _mount(self) -> None:
        self.mounted = False

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.mounts.mount(leader_ms, self.client, self.spec)
            code, after = reply.code, reply.after
            if code is Code.OK:
                self._seen()
            return Answer(code, after)

        def then(code: Code | None) -> None:
            self.mounted = code in (Code.OK, Code.SEGMENT_EXISTS)
            self.world.clock.after_ms(1_000 if self.mounted else 200, self._ping if self.mounted else self._mount)

        self.call("mount", execute, then)

    def _ping(self) -> None:
        def execute(index: Index, leader_ms: int) -> Answer:
            status = index.owners.ping(leader_ms, self.client)
            if status == ClientStatus.OK:
                self._seen()
            return Answer(status, 0)

        def then(status: int | None) -> None:
            if status == ClientStatus.NEED_REMOUNT:
                self._mount()
            else:
                self.world.clock.after_ms(self.world.clock.random.uniform(500, 1_500), self._ping)
                if self.world.plan.copies:
                    self._copier.fetch()

        if self.alive:
            self.call("ping", execute, then)

    def _seen(self) -> None:
        """A leader now knows that this process, and no other one, lends this memory."""
        self.world.oracle.owner_seen(self.spec.id)
