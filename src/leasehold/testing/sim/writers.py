"""Writers of a simulated world: they put, replace, pin, remove, revoke, vanish, and request copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.base.codes import Code, SoftPin
from leasehold.index.index import Index
from leasehold.index.model import PutConfig
from leasehold.index.replies import Acknowledged
from leasehold.testing.sim.callers import TENANT, Caller, are_live, blocks_of_object, lenders_of
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.oracle import Block, Writing
from leasehold.testing.sim.plan import BLOCK
from leasehold.testing.sim.virtual_clock import Violation

if TYPE_CHECKING:
    from leasehold.testing.sim.world import World
PLAIN = PutConfig()
PATTERNS = (b"", b"^key-0", b"[02468]$", b"key-1[0-5]")


class Writer(Caller):
    """Puts, replaces and removes keys, one operation at a time."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"writer{number}")
        self._puts = 0
        self._finished: tuple[bytes, bytes] | None = None  # key and client of the last put that ended well
        self._next()

    def _next(self) -> None:
        if self.world.quiet:
            return
        clock = self.world.clock
        clock.after_ms(clock.random.uniform(10, self.world.think_ms), self._act)

    def _act(self) -> None:
        if self.world.lull:
            self._next()
            return
        chance = self.world.clock.random
        key = b"key-%02d" % chance.randrange(self.world.plan.keys)
        dice = chance.random()
        if dice < 0.58:
            self._put(key, upsert=dice < 0.2)
        elif dice < 0.86:
            self._remove(key, force=dice > 0.78)
        elif dice < 0.89:
            self._remove_matching(chance.choice(PATTERNS))
        elif dice < 0.91:
            self._clear()
        elif self.world.plan.copies:
            self._request_copy(key, move=dice < 0.95)
        else:
            self._next()

    # --- put ---

    def _put(self, key: bytes, *, upsert: bool) -> None:
        world = self.world
        # A client id for every put: client and key identify the end of a put, and a late one must not end the same
        # client's next put of that key.
        self._puts += 1
        client = b"%s-%d" % (self.name.encode(), self._puts)
        size = BLOCK * world.clock.random.choice((1, 1, 2, 3))
        config = self._config()
        attempts: dict[int, tuple[Writing, set[bytes]]] = {}  # by put number: a call may be executed twice
        sent_us = world.clock.now_us

        def execute(index: Index, leader_ms: int) -> Answer | None:
            start = index.puts.start_upsert if upsert else index.puts.start
            if index.owners.unproven and index.owners.space_must_wait(native=False):
                return None
            evicted = index.eviction.evicted_count
            reply = start(leader_ms, client, TENANT, key, size, config)
            code, found, after = reply.code, reply.value, reply.after
            if world.quota_operator is not None:
                world.quota_operator.refused(code)
                if found is not None and found.draft is not None and not found.draft.in_place:
                    world.quota_operator.check_put(index, evicted)
            if code is Code.NO_SPACE:
                world.oracle.no_space(key, index.log.journal_full)
            if code is not Code.OK or found is None:
                return Answer((code, 0), after, hands_out_space=True)
            blocks, lenders = blocks_of_object(found), lenders_of(found)
            attempts[found.put_seq] = Writing(key, found.put_seq, blocks, self.name, are_live(world, lenders)), lenders
            wait_for = 0 if "early-space" in world.bugs else after
            return Answer((code, found.put_seq), wait_for, hands_out_space=True, about=after)

        def leaving(answer: Answer) -> None:
            writing, lenders = attempts.get(answer.value[1], (None, set()))
            if writing is not None and writing.active and are_live(world, lenders):
                world.oracle.handed_out(writing)
                world.give_up_in_time(writing, sent_us)

        def then(value: tuple[Code, int] | None) -> None:
            given = attempts.pop(value[1], None) if value is not None else None
            for unused, _ in attempts.values():
                unused.active = False  # the client never received that space: it writes nothing
            if given is None:
                self._next()
                return
            self._fill(given[0], client, upsert)

        self.call(f"put_start({key!r})", execute, then, leaving)

    def _config(self) -> PutConfig:
        """Most puts are plain; some are pinned, some in a group, some have two replicas."""
        chance = self.world.clock.random
        if chance.random() < 0.7:
            return PLAIN
        dice = chance.random()
        return PutConfig(
            replicas=2 if dice < 0.3 else 1,
            soft_pin=chance.choice((SoftPin.PRESERVE, SoftPin.ENABLE, SoftPin.DISABLE)),
            hard_pin=0.3 <= dice < 0.4,
            group=b"group-%d" % chance.randrange(self.world.plan.groups) if dice > 0.5 else b"",
        )

    def _fill(self, writing: Writing, client: bytes, upsert: bool) -> None:
        """Write the blocks one by one. Some writers are slow, some revoke the put, some vanish."""
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
            world.clock.after_ms(at_ms + 1, self._vanish)  # unfinished: its space is used until it is released
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
                reply = index.puts.revoke(leader_ms, client, TENANT, key)
            elif put_seq % 2:
                reply = index.puts.end(leader_ms, client, TENANT, key)
            else:  # as a batch, which names its key twice
                many = index.puts.end_many(leader_ms, client, TENANT, [(key, None), (key, None)])
                if many.value[0] is not many.value[1]:
                    raise Violation("P7", f"{key!r} ended twice in one call, with {many.value}")
                reply = Acknowledged(many.value[0], many.after)
            after = 0 if "early-put-end" in world.bugs else reply.after
            return Answer(reply.code, after, about=reply.after)

        def leaving(answer: Answer) -> None:
            if answer.value is Code.OK and not revoke and world.oracle.truth.visible.get(key, 0) >= put_seq:
                world.oracle.show(key, put_seq)

        def then(code: Code | None) -> None:
            if code is Code.OK and not revoke:
                self._finished = (key, client)
            self._next()

        self.call(f"{'revoke' if revoke else 'put_end'}({key!r})", execute, then, leaving)

    # --- remove ---

    def _remove(self, key: bytes, *, force: bool) -> None:
        world, decided_us = self.world, 0

        def execute(index: Index, leader_ms: int) -> Answer:
            nonlocal decided_us
            decided_us = world.clock.now_us
            reply = index.removes.remove(leader_ms, TENANT, key, force, self.name.encode())
            code, after = reply.code, reply.after
            return Answer((code, after), 0 if "early-miss" in world.bugs else after, about=after)

        def leaving(answer: Answer) -> None:
            code, n = answer.value
            if code is Code.OK:
                world.oracle.removed(key, n, force, decided_us)

        self.call(f"remove({key!r})", execute, lambda _: self._next(), leaving)

    def _remove_matching(self, pattern: bytes) -> None:
        """Remove all matching objects, or all objects with an empty pattern; leased objects stay."""
        first: list[int] = []

        def execute(index: Index, leader_ms: int) -> Answer:
            first.append(index.log.last_n + 1)
            if pattern:
                reply = index.removes.remove_by_regex(leader_ms, TENANT, pattern, False)
            else:
                reply = index.removes.remove_all(leader_ms, TENANT, False)
            return Answer((reply.code, reply.value), reply.after)

        def leaving(answer: Answer) -> None:
            if answer.value[0] is Code.OK:
                self.world.oracle.range_removed(first[0], answer.after)

        self.call(f"remove_by_regex({pattern!r})", execute, lambda _: self._next(), leaving)

    def _clear(self) -> None:
        """Clear this writer's last put, unless it is leased."""
        if self._finished is None:
            self._next()
            return
        key, client = self._finished
        self._finished = None

        def execute(index: Index, leader_ms: int) -> Answer:
            first_n = index.log.last_n + 1
            reply = index.removes.clear_replicas(leader_ms, client, TENANT, [key], "")
            code, cleared, after = reply.code, reply.value, reply.after
            return Answer((code, first_n if cleared else after + 1), after)

        def leaving(answer: Answer) -> None:
            self.world.oracle.range_removed(answer.value[1], answer.after)

        self.call(f"replica_clear({key!r})", execute, lambda _: self._next(), leaving)

    # --- copies ---

    def _request_copy(self, key: bytes, *, move: bool) -> None:
        """Create a task for the storage host that has the object; query it later."""
        clock = self.world.clock
        target = clock.random.choice(self.world.hosts).spec.name

        def execute(index: Index, leader_ms: int) -> Answer:
            if move:
                reply = index.tasks.create_move(leader_ms, TENANT, key, "", target)
            else:
                reply = index.tasks.create_copy(leader_ms, TENANT, key, (target,))
            return Answer(reply.value if reply.code is Code.OK else b"", reply.after)

        def then(task: bytes | None) -> None:
            if task:
                clock.after_ms(clock.random.uniform(100, 5_000), self._query_task, task)
            self._next()

        self.call(f"create_task({key!r})", execute, then)

    def _query_task(self, task: bytes) -> None:
        status_before = self.world.oracle.truth.tasks.get(task)

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.tasks.query(task)
            found = reply.value
            return Answer((reply.code, found.status if found is not None else -1), reply.after)

        def leaving(answer: Answer) -> None:
            self.world.oracle.task_reported(task, status_before, *answer.value)

        self.call("query_task", execute, lambda _: None, leaving)
