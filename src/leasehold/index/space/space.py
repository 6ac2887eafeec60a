"""Space: which bytes belong to which owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from leasehold.base.invariants import ensure
from leasehold.base.limits import extent_alignment_bytes, quarantine_step_extents
from leasehold.index.clock import LeaderClock
from leasehold.index.coverage import Coverage
from leasehold.index.errors import Unappliable
from leasehold.index.model import (
    PROCESSING,
    CopyJob,
    Object,
    Owner,
    Quarantined,
    Replica,
    RetiredExtent,
    RetiredSegment,
    Segment,
    SegmentSpec,
)
from leasehold.index.records import Cause, Extent
from leasehold.index.space.allocator import Allocator
from leasehold.index.space.mounted import Mounted
from leasehold.index.space.quarantine import Quarantine
from leasehold.index.space.retired import RetiredSegments

Lose = Callable[[Object | CopyJob, Segment, int, int], None]  # an owner has lost a place: owner, segment, offset, n
Stretches = dict[int, list[tuple[int, int]]]  # by incarnation: (start, end)


class Space:
    """Every byte of every mounted segment: free, owned by an object or a copy, or in quarantine.

    **Claims (P3).** A record that hands out space claims it here. Where two claim a byte, the newer record wins: the
    older owner is displaced, and the caller's `lose` is called for it. Evictions have no records, so this is how a
    standby learns that an object was evicted.

    **Quarantine (P2).** Space that leaves its object is free immediately, or quarantined first (`Quarantine`). Memory
    that is unmounted with such space takes it along (`RetiredSegments`), in case the same memory is mounted again.

    **Suspect space.** An eviction has no record, so nodes differ: this node has evicted an object; another node still
    has it, leads next, and rightly serves it under a lease. When that leader dies, this node must not hand out the
    space before the lease expires, although it never learned of the lease. So at each `begin` of another node, the free
    space of segments that this node ever evicted from becomes *suspect*. Space in quarantine at that moment becomes
    suspect when it is freed. Space that the leader itself claims and frees afterwards is not. If this node leads next,
    it quarantines the suspect space that is still free, until the end of the grace. There may be hundreds of thousands
    of free stretches, so the leader *settles* them between requests, and those of a segment before it places anything
    there. Whatever is not settled at the end of the grace needs no quarantine any more.

    Invariants: in each segment free + used = size and no byte has two owners (`Allocator`); `used_bytes` and
    `total_bytes` are sums over the mounted segments; every `Quarantined` owner is in the quarantine.
    """

    __slots__ = (
        "_clock", "_coverage", "_loaded_quarantine", "_put_release_ms", "displaced_count",
        "quarantine", "retired", "segments", "suspect", "total_bytes", "unsettled", "used_bytes",
    )  # fmt: skip

    def __init__(self, clock: LeaderClock, coverage: Coverage, put_release_ms: int) -> None:
        self._clock = clock
        self._coverage = coverage
        self._put_release_ms = put_release_ms
        self.segments = Mounted()
        self.total_bytes = 0
        self.used_bytes = 0
        self.quarantine = Quarantine()
        self._loaded_quarantine: list[Quarantined] = []  # of a snapshot; see `placing_loaded_quarantine`
        self.retired = RetiredSegments()
        self.suspect: Stretches = {}
        self.unsettled: Stretches = {}  # of a leader: suspect space to be quarantined until the end of the grace
        self.displaced_count = 0

    # --- claims ---

    def take_one(self, owner: Object, extent: Extent) -> Segment | None:
        """Claim an extent if its place is free: the usual claim, in few steps. Else None: use `take`."""
        segment = self.segments.get(extent.incarnation)
        if segment is None:
            return None
        taken_bytes = segment.allocator.take(extent.offset, owner)
        if not taken_bytes:
            return None
        self.used_bytes += taken_bytes
        return segment

    def take(self, n: int, owner: Object | CopyJob, extents: tuple[Extent, ...], lose: Lose) -> tuple[Replica, ...]:
        """Claim the extents of record `n`. During replay some may be void; otherwise all are taken."""
        taken = []
        for place, extent in enumerate(extents):
            segment = self.segments.get(extent.incarnation)
            if segment is None:
                if self._coverage.tables_n is None:
                    raise Unappliable(f"record {n} names a mount, {extent.incarnation}, that is not there")
                continue
            if self.claim(segment, extent.offset, owner, n, lose):
                taken.append(Replica(n << 4 | place, segment, extent.offset, PROCESSING))
        return tuple(taken)

    def claim(self, segment: Segment, offset: int, owner: Owner, n: int, lose: Lose) -> bool:
        """Claim one place for record `n`. Older owners are displaced; if one is newer, the claim is void."""
        allocator = segment.allocator
        taken_bytes = allocator.take(offset, owner)
        if taken_bytes:
            self.used_bytes += taken_bytes
            return True
        if not allocator.contains(offset, owner.size):
            raise Unappliable(f"record {n} claims space outside of segment {segment.spec.name!r}")
        blocking = allocator.in_the_way(offset, owner.size)
        if blocking:
            if any(_claimed_n(allocator.owner_at(start), segment, start) > n for start in blocking):
                return False
            for start in blocking:
                self._displace(segment, start, n, lose)
        allocator.claim(offset, owner)
        self.used_bytes += allocator.rounded(owner.size)
        return True

    def displace_older(self, n: int, extents: tuple[Extent, ...], size: int, lose: Lose) -> None:
        """Record `n` handed out these extents, whatever happened to them since: owners older than `n` lose them (P3).

        For replay over a slice that is newer than `n`, next to slices that are older.
        """
        for extent in extents:
            segment, offset = self.segments.get(extent.incarnation), extent.offset
            if segment is None or not segment.allocator.contains(offset, size):
                continue
            allocator = segment.allocator
            for start in allocator.in_the_way(offset, size):
                owner = allocator.owner_of(start)  # None: it left with the one before, as an object's copies do
                if owner is not None and _claimed_n(owner, segment, start) < n:
                    self._displace(segment, start, n, lose)

    def _displace(self, segment: Segment, start: int, n: int, lose: Lose) -> None:
        owner = segment.allocator.owner_at(start)
        self.used_bytes -= segment.allocator.release(start)
        if isinstance(owner, Quarantined):
            self.quarantine.left(owner)
            return
        self.displaced_count += 1
        lose(owner, segment, start, n)

    # --- space leaves its owner ---

    def let_go(self, segment: Segment, offset: int, size: int, n: int, now: int, quarantine_ms: int) -> None:
        """An extent leaves its object with record `n`: free immediately, or after `quarantine_ms`."""
        if segment.unmounted:
            return
        if quarantine_ms > 0:
            entry = Quarantined(segment, offset, size, quarantine_ms, now + quarantine_ms, n)
            segment.allocator.pass_on(offset, entry)
            self.quarantine.add(entry)
        else:
            self.used_bytes -= segment.allocator.release(offset)

    def evict(self, segment: Segment, offset: int) -> None:
        """Free an extent of an evicted object. There is no record of it."""
        self.used_bytes -= segment.allocator.release(offset)
        if not segment.evicted:
            segment.set_evicted()

    def pass_on(self, replica: Replica, owner: Object) -> None:
        """A finished copy belongs to its object from now on."""
        replica.segment.allocator.pass_on(replica.offset, owner)

    def writer_gives_up(self, owner: Owner) -> int:
        """When the last writer of this owner's space must have given up, in internal time; 0: there is no writer."""
        if isinstance(owner, Quarantined):
            return self.quarantine.end_of(owner)
        if isinstance(owner, CopyJob):
            return max(owner.started, self._clock.epoch_start) + self._put_release_ms
        if owner.draft is not None:
            return max(owner.draft.started, self._clock.epoch_start) + self._put_release_ms
        return 0

    # --- quarantine ---

    def free_quarantined(self, now: int, suspect_up_to_n: int = -1) -> bool:
        """Free extents whose quarantine has expired; returns whether there are more. No record is needed.

        A follower suspects extents that were quarantined up to record `suspect_up_to_n`, as it suspects space that was
        free then.
        """
        for entry in self.quarantine.take_expired(now, quarantine_step_extents):
            segment = entry.segment
            self.used_bytes -= segment.allocator.release(entry.offset)
            if entry.n <= suspect_up_to_n and segment.evicted:
                stretch = entry.offset, entry.offset + segment.allocator.rounded(entry.size)
                self.suspect.setdefault(segment.incarnation, []).append(stretch)
        return self.quarantine.has_expired(now)

    def _quarantine_free(self, segment: Segment, offset: int, size: int, n: int, now: int, quarantine_ms: int) -> None:
        """Put free space into quarantine."""
        entry = Quarantined(segment, offset, size, quarantine_ms, now + quarantine_ms, n)
        segment.allocator.claim(offset, entry)
        self.used_bytes += segment.allocator.rounded(size)
        self.quarantine.add(entry)

    def load_quarantined(self, entry: Quarantined) -> None:
        """An extent of a snapshot: it is placed when replay has passed the last slice."""
        self._loaded_quarantine.append(entry)

    def placing_loaded_quarantine(self, lose: Lose, every: int) -> Iterator[None]:
        """Replay has passed the last slice: its quarantine takes its places, where nothing newer is.

        Not before: a record between the slices may show that an object had left a place before it was quarantined.
        Pauses after `every` extents. They are placed in any order: an entry that a newer one would have displaced, had
        that one not lost its place, keeps free space in quarantine for a while, which harms nothing.
        """
        entries, self._loaded_quarantine = self._loaded_quarantine, []
        for number, entry in enumerate(entries, start=1):
            if number % every == 0:
                yield
            segment = entry.segment
            there = segment.allocator.owner_of(entry.offset)
            again = isinstance(there, Quarantined) and there.n == entry.n
            if not segment.unmounted and not again and self.claim(segment, entry.offset, entry, entry.n, lose):
                self.quarantine.add(entry)

    # --- segments ---

    def mount(self, spec: SegmentSpec, client: bytes, n: int, now: int) -> None:
        """Record `n` mounts a segment. Bytes that may still be read or written start in quarantine (schedule 8d)."""
        segment = self.add_segment(spec, client, n, now)
        base, allocator = spec.base, segment.allocator
        retired = self.retired.under(spec)
        for each in retired:
            for extent in each.extents:
                offset = extent.address - base
                if (
                    extent.end > now
                    and allocator.contains(offset, extent.size)
                    and not allocator.in_the_way(offset, extent.size)
                ):
                    self._quarantine_free(segment, offset, extent.size, n, now, extent.end - now)
        for each in retired:
            low, high = each.base - base, each.base + each.size - base
            for start, length in list(allocator.free_blocks()) if each.end > now else ():
                if start < high and low < start + length:
                    self._quarantine_free(segment, start, length, n, now, each.end - now)

    def add_segment(self, spec: SegmentSpec, client: bytes, incarnation: int, joined: int) -> Segment:
        """Add an empty segment."""
        segment = Segment(spec, client, incarnation, Allocator(spec.size), joined=joined)
        self._add(segment)
        return segment

    def load_segment(
        self,
        spec: SegmentSpec,
        client: bytes,
        incarnation: int,
        drain_end: int,
        evicted: bool,
        unit: int = extent_alignment_bytes,
        awaits_mount: bool = False,
    ) -> None:
        """Add a segment of a snapshot."""
        allocator: Allocator[Owner] = Allocator(spec.size, unit)
        self._add(Segment(spec, client, incarnation, allocator, drain_end, evicted, awaits_mount=awaits_mount))

    def adopt_segment(self, spec: SegmentSpec, client: bytes, incarnation: int, unit: int) -> None:
        """Add a segment of another master, which its owner has yet to mount here."""
        self.load_segment(spec, client, incarnation, 0, False, unit, awaits_mount=True)

    def quarantine_unlisted(self, segment: Segment, n: int, now: int, quarantine_ms: int) -> None:
        """Record `n` ends an adoption. Clients of the old master may still read or write what it did not list."""
        for start, length in list(segment.allocator.free_blocks()):
            self._quarantine_free(segment, start, length, n, now, quarantine_ms)

    def bind(self, segment: Segment, spec: SegmentSpec, client: bytes) -> None:
        """The owner of an adopted segment has mounted it."""
        self.segments.rebind(segment, spec, client)

    def _add(self, segment: Segment) -> None:
        self.segments.add(segment)
        self.total_bytes += segment.allocator.size

    def end_segment(self, segment: Segment, n: int, now: int, cause: Cause, written: list[Object | CopyJob]) -> None:
        """Record `n` unmounts a segment. `written`: the puts and copies that are under way on it."""
        self.segments.discard(segment.incarnation)
        segment.unmount(n)
        self.total_bytes -= segment.allocator.size
        self.used_bytes -= segment.allocator.used_bytes
        self._retire(segment, now, cause, written)

    def _retire(self, segment: Segment, now: int, cause: Cause, written: list[Object | CopyJob]) -> None:
        """Remember which bytes must be quarantined if this memory is mounted again.

        All of them, where readers may be at work: after a death that may be false, and after an owner took the memory
        back and is alive. If another process owns it now (superseded), only the extents of writers.
        """
        owners: list[tuple[int, Owner]] = [
            (replica.offset, owner) for owner in written for replica in owner.replicas if replica.segment is segment
        ]
        for entry in self.quarantine.live(segment):
            owners.append((entry.offset, entry))
            self.quarantine.left(entry)
        extents = []
        for start, owner in sorted(owners, key=lambda one: one[0]):
            end = self.writer_gives_up(owner)
            if end > now:
                extents.append(RetiredExtent(segment.spec.base + start, owner.size, end, end - now))
        whole_ms = 0 if cause == Cause.SUPERSEDED else self._clock.max_term_ms
        self.retired.add(segment.spec, now, whole_ms, extents)

    def drain(self, segment: Segment, drain_end: int) -> None:
        """No new objects on this segment; it is to be unmounted at `drain_end`."""
        segment.drain(drain_end)
        self.segments.refresh_placeable()

    def set_draining(self, incarnations: Iterable[int], draining: bool) -> None:
        """A drain job empties these mounts, or no longer."""
        for incarnation in incarnations:
            segment = self.segments.get(incarnation)
            if segment is not None:
                segment.set_draining(draining)
        self.segments.refresh_placeable()

    def move_drain_ends(self, by_ms: int) -> None:
        """The internal axis of this node starts later (see `LeaderClock.begin_after_death`)."""
        for segment in self.segments.values():
            if segment.drain_end:
                segment.drain(segment.drain_end + by_ms)

    def set_proven(self, segments: Iterable[Segment], proven: bool) -> None:
        """Whether the owners of these segments have pinged since the last complete restart (H9)."""
        for segment in segments:
            segment.set_proven(proven)
        self.segments.refresh_placeable()

    def lift(self, n: int, now: int, grace_ms: int) -> None:
        """Record `n` began an epoch after a death: everything in quarantine stays for the grace at least."""
        self.quarantine.lift(n, now, grace_ms)
        self.retired.lift(now, grace_ms)

    def load(self, retired: list[RetiredSegment], suspect: Stretches) -> None:
        """Continue from a snapshot, after `load_segment`."""
        self.segments.refresh_placeable()
        self.retired.load(retired)
        self.suspect = suspect

    # --- suspect space ---

    def suspecting(self, every: int) -> Iterator[None]:
        """Another node leads from now on. Pauses after `every` stretches; no space may change meanwhile."""
        self.unsettled = {}
        self.suspect = {}
        left = every
        for segment in self.segments.values():
            if not segment.evicted:
                continue
            stretches = self.suspect[segment.incarnation] = []
            for start, length in segment.allocator.free_blocks():
                stretches.append((start, start + length))
                left -= 1
                if not left:
                    left = every
                    yield

    def begin_settling(self) -> None:
        """This node leads from now on: suspect space that is still free is quarantined through the grace."""
        for incarnation, stretches in self.suspect.items():
            self.unsettled.setdefault(incarnation, []).extend(stretches)
        self.suspect = {}

    def settle_some(self, now: int, budget: int) -> bool:
        """Settle about `budget` stretches, or forget all of them after the grace; returns whether there are more."""
        if now >= self._clock.grace_end:
            self.unsettled = {}
        for incarnation in list(self.unsettled):
            budget = self.settle_segment(incarnation, budget)
            if budget <= 0:
                break
        return bool(self.unsettled)

    def settle_segment(self, incarnation: int, budget: int) -> int:
        """Settle stretches of one segment; returns the rest of the budget."""
        segment, stretches = self.segments.get(incarnation), self.unsettled[incarnation]
        n, began = self._clock.begin_n, self._clock.epoch_start
        quarantine_ms = self._clock.grace_end - began
        while segment is not None and stretches and budget > 0:
            start, end = stretches.pop()
            for free_start, free_end in segment.allocator.free_within(start, end):
                if budget <= 0:
                    stretches.append((free_start, end))
                    break
                # The same whenever it is settled: as if it had been when the epoch began.
                self._quarantine_free(segment, free_start, free_end - free_start, n, began, quarantine_ms)
                budget -= 1
        if segment is None or not stretches:
            del self.unsettled[incarnation]
        return budget

    def all_suspect(self) -> tuple[tuple[int, list[tuple[int, int]]], ...]:
        """For a snapshot: what a leader has not settled is suspect for the node that loads it."""
        return (*self.suspect.items(), *self.unsettled.items())

    def discarding(self, every: int, ending: Iterable[Segment]) -> Iterator[None]:
        """Take every block from its owner, in an index that is no longer used. Pauses after about `every` blocks.

        `ending`: unmounted segments that still have owners. An owner refers to its segments, and a segment to its
        owners. Python's garbage collector cannot free them: it does not track the owners (`gc=False`).
        """
        self._loaded_quarantine.clear()
        yield from self.quarantine.discarding(every)
        left = every
        for segment in (*self.segments.values(), *ending):
            segment.allocator.discard_free()
            while segment.allocator.block_count:
                left -= len(segment.allocator.forget(left))
                if not left:
                    left = every
                    yield

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        self.quarantine.check()
        self.retired.check()
        live = {id(entry) for entry in self.quarantine.live()}
        for segment in self.segments.values():
            segment.allocator.check()
            for start, owner in segment.allocator.used_blocks():
                known = not isinstance(owner, Quarantined) or id(owner) in live
                ensure(known, "every quarantine has an end", segment.spec.name, start)
        used = sum(segment.allocator.used_bytes for segment in self.segments.values())
        total = sum(segment.allocator.size for segment in self.segments.values())
        ensure((self.used_bytes, self.total_bytes) == (used, total), "space is counted", self.used_bytes, used)


def _claimed_n(owner: Owner, segment: Segment, start: int) -> int:
    """The record that gave this place to its owner."""
    if isinstance(owner, Quarantined):
        return owner.n
    if isinstance(owner, Object) and owner.segment is not None:
        return owner.put_seq
    for replica in owner.replicas:
        if replica.offset == start and replica.segment is segment:
            return replica.claimed_n
    return owner.put_seq
