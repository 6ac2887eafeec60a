"""A pool that was adopted from another master just before the simulation starts.

The other master is not simulated: its clients are. At the cut they hold leases on its objects and are in the middle of
puts, which it did not list. A storage host may have restarted since.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from leasehold.ha.keys import pack
from leasehold.ha.node_values import TruncationPoint
from leasehold.index.adoption import ListedObject, Place, Plan, ReportedSegment, Terms, records_of
from leasehold.index.index import Index
from leasehold.index.records import AdoptEnd, BindSegment, MaxTerm, PutStart, Record
from leasehold.journal.snapshot_file import SnapshotTaker
from leasehold.mvcc.model import Put
from leasehold.testing.sim.callers import TENANT
from leasehold.testing.sim.oracle import Block, Grant, Writing, blocks_of
from leasehold.testing.sim.plan import BLOCK

if TYPE_CHECKING:
    from leasehold.testing.sim.world import World

OLD_LEASES_MS = (2_000, 12_000)
WAKES = 12  # puts of an old master that is not dead


class OldPool:
    """Builds the adopted state on the first node's disk, and lets the old master's clients finish."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._chance = chance = random.Random(f"old-{world.seed}")
        self.lease_ms = chance.choice(OLD_LEASES_MS)
        self.release_ms = world.plan.index.put_release_ms
        self.objects = 0
        self.readers = 0
        self.writers = 0
        self._free: dict[int, list[int]] = {}  # by host: blocks without a listed object
        records = self._records()
        index = Index(world.plan.index, lambda choices: 0)
        for n, record in enumerate(records, 1):
            index.apply(n, record)
            world.oracle.truth.apply(0, record)
        world.oracle.truth.disturb()  # free space is quarantined: even a roomy pool may have to evict
        world.nodes[0].disk = [_snapshot(index, world.cluster)]
        world.store.store.execute(Put(world.keys.truncation, pack(TruncationPoint(len(records), 0))))
        if chance.random() < 0.4:
            world.restart_host(chance.randrange(len(world.hosts)), chance.uniform(0, 2_000))

    def bound(self) -> int:
        """Segments that their owner has mounted."""
        return sum(isinstance(record, BindSegment) for _, record in self.world.oracle.truth.log)

    # --- the listing ---

    def _records(self) -> list[Record]:
        """The records of the adoption, with the bugs that are planted."""
        world, bugs = self.world, self.world.bugs
        listing, used = self._fill()
        segments = [ReportedSegment(host.spec, host.client, used[number]) for number, host in enumerate(world.hosts)]
        plan = Plan(segments, listing)
        terms = Terms(self.lease_ms, self.release_ms)
        records = list(records_of(plan, terms, world.plan.index.lease_ttl_ms))
        if "adopt-own-grace" in bugs:
            records = [MaxTerm(0, world.plan.index.lease_ttl_ms) if type(one) is MaxTerm else one for one in records]
        if "unlisted-not-quarantined" in bugs:
            records = [AdoptEnd(0, ()) if type(one) is AdoptEnd else one for one in records]
        numbers = {one.key: n for n, one in enumerate(records, 1) if type(one) is PutStart}
        for listed in listing:
            self._begin_object(listed, numbers[listed.key])
        for blocks in self._unfinished:
            self._begin_writer(blocks, self.release_ms)
        if "old-master-wakes" in bugs:
            for _ in range(WAKES):
                world.clock.after_ms(self._chance.uniform(0, 40_000), self._wake)
        return records

    def _fill(self) -> tuple[list[ListedObject], list[int]]:
        """Objects with gaps between them, and unfinished puts in some of the gaps; also the used bytes."""
        world, chance = self.world, self._chance
        listing: list[ListedObject] = []
        used = [0] * len(world.hosts)
        places = [0] * len(world.hosts)
        self._unfinished: list[tuple[Block, ...]] = []
        self._stale: set[bytes] = set()
        for number in range(world.plan.keys):
            host, size = chance.randrange(len(world.hosts)), chance.choice((1, 1, 2)) * BLOCK
            spec, at = world.hosts[host].spec, places[host]
            if at + size > spec.size or chance.random() < 0.3:
                continue
            places[host] += size
            used[host] += size
            place = Place(spec.endpoint, spec.base + at, size)
            if chance.random() < 0.25:
                self._unfinished.append(tuple(blocks_of(place.endpoint, place.address, size)))
                # Before the cut an object was here. It was removed, and its space was given to this put.
                if "adopt-before-the-cut" in world.bugs:
                    self._stale.add(b"key-%02d" % number)
                else:
                    continue
            listing.append(ListedObject(TENANT, b"key-%02d" % number, (place,)))
        self._free = {host: list(range(at // BLOCK, world.plan.segment_blocks)) for host, at in enumerate(places)}
        self.objects = len(listing)
        return listing, used

    # --- the clients of the old master ---

    def _begin_object(self, listed: ListedObject, put_seq: int) -> None:
        world, chance = self.world, self._chance
        place = listed.places[0]
        blocks = tuple(blocks_of(place.endpoint, place.address, place.size))
        if listed.key in self._stale:
            return
        for block in blocks:
            world.oracle.write(block, (listed.key, put_seq))
        if chance.random() < 0.5:
            self.readers += 1
            until_us = int(self.lease_ms * 1000 * (1 - world.plan.drift))
            grant = Grant(listed.key, put_seq, blocks, until_us, "old reader")
            world.oracle.hit(listed.key, put_seq, 0, grant)
            for _ in range(3):
                world.clock.after_us(chance.randrange(until_us), self._look, grant)

    def _look(self, grant: Grant) -> None:
        if self.world.clock.now_us < grant.until_us:
            self.world.oracle.read(grant)

    def _begin_writer(self, blocks: tuple[Block, ...], release_ms: float) -> None:
        """A put of the old master writes until its writer must have given up."""
        world, chance = self.world, self._chance
        self.writers += 1
        writing = Writing(b"old put", -self.writers, blocks, "old writer")
        world.oracle.handed_out(writing)
        world.give_up_in_time(writing, world.clock.now_us)
        for block in blocks:
            world.clock.after_ms(chance.uniform(0, release_ms), self._write, writing, block)

    def _write(self, writing: Writing, block: Block) -> None:
        if writing.active:
            self.world.oracle.write(block, (writing.key, writing.put_seq))

    def _wake(self) -> None:
        """An old master that is not dead hands out the space that is free to it."""
        host = self._chance.randrange(len(self.world.hosts))
        if self._free[host] and self.world.hosts[host].alive:
            number = self._free[host].pop(0)
            spec = self.world.hosts[host].spec
            self._begin_writer(tuple(blocks_of(spec.endpoint, spec.base + number * BLOCK, BLOCK)), 2_000)


def _snapshot(index: Index, cluster: str) -> bytes:
    return b"".join(_parts(SnapshotTaker(index, cluster)))


def _parts(taker: SnapshotTaker) -> Iterator[bytes]:
    while not taker.sliced:
        yield taker.slice()
    while part := taker.quarantined():
        yield part
    yield taker.keyless()
