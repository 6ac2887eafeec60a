"""The clients of a simulated world: hosts that lend memory, writers that fill it, readers that hold leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leasehold.base.codes import ClientStatus, Code
from leasehold.index.index import Index
from leasehold.index.model import Object, PutConfig, SegmentSpec
from leasehold.testing.sim.nodes import Answer
from leasehold.testing.sim.oracle import Block, Grant, Writing, blocks_of
from leasehold.testing.sim.plan import BASE, BLOCK

if TYPE_CHECKING:
    from leasehold.testing.sim.world import World

TENANT = b"default"
CALL_MS = 4_000
RETRY_MS = 60


class Caller:
    """Somebody who calls whichever node leads, and follows the leader when it is told to try elsewhere."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.alive = True
        self.guess = world.clock.random.randrange(len(world.nodes))

    def call(
        self,
        what: str,
        execute: Callable[[Index, int], Answer],
        then: Callable[[Any], None],
        leaving: Callable[[Answer], None] | None = None,
    ) -> None:
        """`then(value)`; None stands for: no answer, outcome unknown."""
        _Call(self, what, execute, then, leaving).go()


class _Call:
    def __init__(
        self,
        caller: Caller,
        what: str,
        execute: Callable[[Index, int], Answer],
        then: Callable[[Any], None],
        leaving: Callable[[Answer], None] | None,
    ) -> None:
        self.caller, self.what = caller, what
        self._execute, self._then, self._leaving = execute, then, leaving
        self._open = True
        self._sent_to = 0

    def go(self) -> None:
        world = self.caller.world
        world.clock.after_ms(CALL_MS, self._end, None)
        self._send()

    def _send(self) -> None:
        caller = self.caller
        if not self._open or not caller.alive:
            return
        world = caller.world
        node = world.nodes[caller.guess % len(world.nodes)]
        self._sent_to = caller.guess
        if node.run is None:
            self.refused_later()
            return
        if world.network.connected(caller.name, node.name):
            world.clock.after_ms(world.network.latency_ms(caller.name, node.name), node.run.serve, self)

    def refused_later(self) -> None:
        self.caller.world.clock.after_ms(RETRY_MS, self.refused)

    def execute(self, index: Index, leader_ms: int) -> Answer:
        return self._execute(index, leader_ms)

    def leaving(self, answer: Answer) -> None:
        if self._leaving is not None:
            self._leaving(answer)

    def finish(self, value: Any) -> None:
        self._end(value)

    def refused(self) -> None:
        """Not the primary: nothing was done there, so the call may go elsewhere."""
        if self._open and self.caller.alive:
            if self.caller.guess == self._sent_to:
                self.caller.guess += 1
            self.caller.world.clock.after_ms(RETRY_MS, self._send)

    def _end(self, value: Any) -> None:
        if self._open:
            self._open = False
            if value is None:
                self.caller.guess += 1
            if self.caller.alive:
                self._then(value)


class Host(Caller):
    """A storage client: lends one segment, pings, mounts again when told to."""

    def __init__(self, world: World, number: int, incarnation: int) -> None:
        super().__init__(world, f"host{number}")
        self.number = number
        self.endpoint = f"host{number}:9000"
        self.client = b"client-%d-%d" % (number, incarnation)
        size = world.plan.segment_blocks * BLOCK
        self.spec = SegmentSpec(b"seg-%d-%d" % (number, incarnation), f"host{number}", BASE, size, self.endpoint, "tcp")
        self.mounted = False
        self._mount()

    def _mount(self) -> None:
        self.mounted = False

        def execute(index: Index, leader_ms: int) -> Answer:
            code, after = index.mount(leader_ms, self.client, self.spec)
            return Answer(code, after)

        def then(code: Code | None) -> None:
            self.mounted = code in (Code.OK, Code.SEGMENT_EXISTS)
            self.world.clock.after_ms(1_000 if self.mounted else 200, self._ping if self.mounted else self._mount)

        self.call("mount", execute, then)

    def _ping(self) -> None:
        def execute(index: Index, leader_ms: int) -> Answer:
            return Answer(index.ping(leader_ms, self.client), 0)

        def then(status: int | None) -> None:
            if status == ClientStatus.NEED_REMOUNT:
                self._mount()
            else:
                self.world.clock.after_ms(self.world.clock.random.uniform(500, 1_500), self._ping)

        if self.alive:
            self.call("ping", execute, then)


class Writer(Caller):
    """Puts, replaces and removes keys, one thing at a time."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"writer{number}")
        self._puts = 0
        self._next()

    def _next(self) -> None:
        if self.world.quiet:
            return
        clock = self.world.clock
        clock.after_ms(clock.random.uniform(10, self.world.think_ms), self._act)

    def _act(self) -> None:
        chance = self.world.clock.random
        key = b"key-%02d" % chance.randrange(self.world.plan.keys)
        dice = chance.random()
        if dice < 0.60:
            self._put(key, upsert=dice < 0.2)
        elif dice < 0.97:
            self._remove(key, force=dice > 0.85)
        else:
            self._remove_all()

    # --- put ---

    def _put(self, key: bytes, *, upsert: bool) -> None:
        world = self.world
        # A client of its own for every put: the end of a put is told by client and key, and one that comes late must
        # not end the same client's next put of that key.
        self._puts += 1
        client = b"%s-%d" % (self.name.encode(), self._puts)
        size = BLOCK * world.clock.random.choice((1, 1, 2, 3))
        writing: list[Writing] = []
        lenders: set[bytes] = set()
        sent_us = world.clock.now_us

        def execute(index: Index, leader_ms: int) -> Answer:
            start = index.upsert_start if upsert else index.put_start
            code, found, after = start(leader_ms, client, TENANT, key, size, PutConfig())
            if code is not Code.OK or found is None:
                return Answer((code, 0), after, hands_out_space=True)
            blocks = blocks_of_object(found)
            lenders.update(_lenders(found))
            writing.append(Writing(key, found.put_seq, blocks, self.name, _live(world, lenders)))
            wait_for = 0 if "early-space" in world.bugs else after
            return Answer((code, found.put_seq), wait_for, hands_out_space=True, about=after)

        def leaving(answer: Answer) -> None:
            if writing and writing[0].active and _live(world, lenders):
                world.oracle.handed_out(writing[0])
                # A writer must have given up by the release time, counted from when it sent its request.
                left_us = int(world.plan.index.put_release_ms * 1000 * 0.97) - (world.clock.now_us - sent_us)
                world.clock.after_us(max(0, left_us), self._give_up, writing[0])

        def then(value: tuple[Code, int] | None) -> None:
            if value is None or value[0] is not Code.OK:
                if value is None and writing:
                    writing[0].active = False  # it never heard of the space: it writes nothing
                self._next()
                return
            self._fill(writing[0], client, upsert)

        self.call(f"put_start({key!r})", execute, then, leaving)

    @staticmethod
    def _give_up(writing: Writing) -> None:
        writing.active = False

    def _fill(self, writing: Writing, client: bytes, upsert: bool) -> None:
        """Write the blocks one by one; some writers are slow, some give it back, some just vanish."""
        world, chance = self.world, self.world.clock.random
        if not writing.active:
            self._next()
            return
        slow = chance.random() < 0.15
        at_ms = 0.0
        for block in writing.blocks:
            at_ms += chance.uniform(0.1, 5_000 if slow else 20)
            world.clock.after_ms(at_ms, self._write, writing, block)
        dice = chance.random()
        if dice < 0.08:
            world.clock.after_ms(at_ms + 1, self._end_put, writing, client, upsert, True)
        elif dice < 0.12:
            world.clock.after_ms(at_ms + 1, self._vanish)  # unfinished: its space stays taken until it is released
        else:
            world.clock.after_ms(at_ms + 1, self._end_put, writing, client, upsert, False)

    def _vanish(self) -> None:
        self._next()

    def _write(self, writing: Writing, block: Block) -> None:
        if writing.active:
            self.world.oracle.write(block, (writing.key, writing.put_seq))

    def _end_put(self, writing: Writing, client: bytes, upsert: bool, revoke: bool) -> None:
        world, key, put_seq = self.world, writing.key, writing.put_seq
        if not writing.active:
            self._next()
            return
        writing.active = False

        def execute(index: Index, leader_ms: int) -> Answer:
            if revoke:
                give_back = index.upsert_revoke if upsert else index.put_revoke
                code, after = give_back(leader_ms, client, TENANT, key)
            else:
                end = index.upsert_end if upsert else index.put_end
                code, after = end(leader_ms, client, TENANT, key)
            return Answer(code, 0 if "early-put-end" in world.bugs else after, about=after)

        def leaving(answer: Answer) -> None:
            if answer.value is Code.OK and not revoke and world.oracle.truth.visible.get(key, 0) >= put_seq:
                world.oracle.show(key, put_seq)

        def then(code: Code | None) -> None:
            self._next()

        self.call(f"{'revoke' if revoke else 'put_end'}({key!r})", execute, then, leaving)

    # --- remove ---

    def _remove(self, key: bytes, *, force: bool) -> None:
        world = self.world

        def execute(index: Index, leader_ms: int) -> Answer:
            code, after = index.remove(leader_ms, TENANT, key, force, self.name.encode())
            return Answer((code, after), 0 if "early-miss" in world.bugs else after, about=after)

        def leaving(answer: Answer) -> None:
            code, n = answer.value
            if code is Code.OK:
                world.oracle.removed(key, n, force)

        self.call(f"remove({key!r})", execute, lambda _: self._next(), leaving)

    def _remove_all(self) -> None:
        def execute(index: Index, leader_ms: int) -> Answer:
            code, count, after = index.remove_all(leader_ms, TENANT, False)
            return Answer((code, count), after)

        self.call("remove_all", execute, lambda _: self._next())


class Reader(Caller):
    """Reads keys, and looks at their bytes at any time within the lease."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"reader{number}")
        # Its clock may tick differently from the master's by the configured drift.
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
        floor_n, changed_n, visible = oracle.shown.get(key, 0), truth.changed.get(key, 0), truth.visible.get(key)
        sent_us = world.clock.now_us
        grants: list[Grant] = []
        lenders: set[bytes] = set()

        def execute(index: Index, leader_ms: int) -> Answer:
            found = index.get(leader_ms, TENANT, key)
            if found is None:
                code, after = index.miss(TENANT, key)
                return Answer(code, 0 if "early-miss" in world.bugs else after, about=after)
            usable_us = int(index.lease_ttl_ms * 1000 * (1 - world.plan.drift) / self._rate)
            lenders.update(_lenders(found))
            until_us = sent_us + usable_us
            grants.append(Grant(key, found.put_seq, blocks_of_object(found), until_us, self.name))
            return Answer(Code.OK, found.changed_n)

        def leaving(answer: Answer) -> None:
            if grants:
                if not _live(world, lenders):
                    grants[0].until_us = 0  # also if the owner died while the answer was held
                oracle.hit(key, grants[0].put_seq, floor_n, grants[0])
            elif answer.value is Code.NOT_FOUND:
                oracle.missed(key, answer.after, changed_n, visible)

        def then(code: Code | None) -> None:
            if code is Code.OK:
                left_us = grants[0].until_us - world.clock.now_us
                if left_us > 0:
                    for _ in range(2):
                        world.clock.after_us(world.clock.random.randrange(left_us), self._look, grants[0])
            self._next()

        self.call(f"get({key!r})", execute, then, leaving)

    def _look(self, grant: Grant) -> None:
        if self.world.clock.now_us < grant.until_us:
            self.world.oracle.read(grant)


def _lenders(found: Object) -> set[bytes]:
    """The segments that an object's memory is in."""
    return {replica.segment.spec.id for replica in found.replicas}


def _live(world: World, lenders: set[bytes]) -> bool:
    """Whether the processes that lend this memory are still the ones at that address: else nothing is promised."""
    return lenders <= {host.spec.id for host in world.hosts}


def blocks_of_object(found: Object) -> tuple[Block, ...]:
    """Every block of every replica."""
    return tuple(
        block
        for replica in found.replicas
        for block in blocks_of(replica.segment.spec.endpoint, replica.address, found.size)
    )
