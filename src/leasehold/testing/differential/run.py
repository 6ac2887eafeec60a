"""Run one script against two servers, and stop at the first difference."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from google.protobuf.message import Message
from msgspec import Struct

from leasehold.base.errors import LeaseholdError
from leasehold.etcd.pb import rpc_pb2
from leasehold.testing.differential.generate import KEYS, Generator, Step
from leasehold.testing.differential.side import Answer, Side

CONCURRENT_READS = 24
CONCURRENT_WATCHES = 6
CHECK_EVERY_OPERATIONS = 100
EXPIRY_EVERY_OPERATIONS = 2_500
PATIENCE_S = 30.0  # only ends a hang; not a measurement
EXPIRING_LEASE = 4242
EXPIRING_TTL_S = 3
HISTORY = 12
NO_WATCH = -1  # the id in answers that belong to no watch


class Report(Struct, frozen=True):
    """Counts of the comparison."""

    operations: int
    watches: int
    events: int
    errors: int
    expiries: int


class Difference(LeaseholdError, AssertionError):
    """The two servers behaved differently."""


async def compare(reference: str, other: str, *, seed: int, operations: int) -> Report:
    """Send the same `operations` random operations to both (`host:port`); raises `Difference` at the first one."""
    run = Run(await Side.open("reference", reference), await Side.open("other", other), seed)
    try:
        return await run.all(operations)
    finally:
        await asyncio.gather(run.left.close(), run.right.close())


class Run:
    """One script on two servers."""

    def __init__(self, left: Side, right: Side, seed: int) -> None:
        self.left, self.right = left, right
        self._seed = seed
        self._generator = Generator(seed)
        self._done = self._errors = self._expiries = 0
        self._recent: deque[tuple[str, Message]] = deque(maxlen=HISTORY)
        self._next_watch = 1
        self._live: dict[int, bool] = {}  # watch id -> whether it started at the present, not in the past
        self._ended: set[int] = set()
        self._past: dict[int, int] = {}  # watch id -> the past revision, still there, that it started from
        self._overtaken: set[int] = set()

    async def all(self, operations: int) -> Report:
        await self.clean()
        while self._done < operations:
            if self._done % CHECK_EVERY_OPERATIONS == 0:
                await self.check_watches()
                await self._change_watches()
            if self._done % EXPIRY_EVERY_OPERATIONS == EXPIRY_EVERY_OPERATIONS // 2:
                await self._expire()
            await self._some(min(operations - self._done, self._until_next_check()))
        await self.check_watches()
        events = sum(len(log.events) for log in self.left.watches.values())
        return Report(self._done, self._next_watch - 1, events, self._errors, self._expiries)

    def _until_next_check(self) -> int:
        here = self._done
        return min(every - here % every for every in (CHECK_EVERY_OPERATIONS, EXPIRY_EVERY_OPERATIONS // 2))

    async def clean(self) -> None:
        """Both start from the same: no keys, no leases, one revision."""
        everything = rpc_pb2.DeleteRangeRequest(key=b"\0", range_end=b"\0")
        await self.both(Step("DeleteRange", everything, False), compared=False)
        for side in (self.left, self.right):
            leases = (await side.call(Step("LeaseLeases", rpc_pb2.LeaseLeasesRequest(), True))).message
            for lease in leases.leases if isinstance(leases, rpc_pb2.LeaseLeasesResponse) else ():
                await side.call(Step("LeaseRevoke", rpc_pb2.LeaseRevokeRequest(ID=lease.ID), False))
        await self._level()

    async def _level(self) -> None:
        """Bring the one that is behind to the revision of the other."""
        put = Step("Put", rpc_pb2.PutRequest(key=b"level"), False)
        revisions = {side.name: _revision(await side.call(put)) for side in (self.left, self.right)}
        for side in (self.left, self.right):
            for _ in range(max(revisions.values()) - revisions[side.name]):
                await side.call(put)
        self._generator.revision = max(revisions.values())

    # ---- calls ----

    async def _some(self, most: int) -> None:
        """Run reads concurrently, up to a step that changes something, which runs alone."""
        reads: list[Step] = []
        change: Step | None = None
        while change is None and len(reads) < min(most, CONCURRENT_READS):
            step = self._generator.next()
            if step.reads:
                reads.append(step)
            else:
                change = step
        await asyncio.gather(*(self.both(step) for step in reads))
        self._done += len(reads)
        if change is not None:
            await self.both(change)
            self._done += 1

    async def both(self, step: Step, *, compared: bool = True) -> Answer:
        left, right = await asyncio.gather(self.left.call(step), self.right.call(step))
        self._recent.append((step.method, step.request))
        if compared and left != right:
            self._differ(f"{step.method}\n{step.request!s:.2000}\n", left, right)
        if left.message is None:
            self._errors += 1
        else:
            self._generator.revision = max(self._generator.revision, _revision(left))
            if isinstance(step.request, rpc_pb2.CompactionRequest):
                self._generator.compacted = max(self._generator.compacted, step.request.revision)
        return left

    def _differ(self, what: str, left: object, right: object) -> None:
        lines = [f"{method} {request!s:.400}".replace("\n", " ") for method, request in self._recent]
        before = "\n  ".join(lines[:-1])
        raise Difference(
            f"seed {self._seed}, operation {self._done}: {what}\n"
            f"--- reference ---\n{left}\n--- other ---\n{right}\nbefore it:\n  {before}"
        )

    # ---- the end of a lease ----

    async def _expire(self) -> None:
        """Let a lease with keys expire; both servers must delete the same keys at the same revision."""
        self._expiries += 1
        # Long enough for the puts even if the machine stalls for a moment: it must not expire before them.
        grant = rpc_pb2.LeaseGrantRequest(ID=EXPIRING_LEASE, TTL=EXPIRING_TTL_S)
        await self.both(Step("LeaseGrant", grant, False))
        for key in self._generator.random.sample(KEYS, 3):
            await self.both(Step("Put", rpc_pb2.PutRequest(key=key, lease=EXPIRING_LEASE), False))
        look = Step("LeaseTimeToLive", rpc_pb2.LeaseTimeToLiveRequest(ID=EXPIRING_LEASE), True)
        deadline = time.monotonic() + PATIENCE_S
        for side in (self.left, self.right):
            while getattr((await side.call(look)).message, "grantedTTL", 0):
                if time.monotonic() > deadline:
                    raise Difference(f"seed {self._seed}: a lease of {EXPIRING_TTL_S} s did not end at {side.name}")
                await asyncio.sleep(0.1)
        await self.both(look)
        await self.both(Step("Range", rpc_pb2.RangeRequest(key=b"\0", range_end=b"\0"), True))
        self._done += 7

    # ---- watches ----

    async def _change_watches(self) -> None:
        """Cancel a watch, start watches, request progress."""
        pick = self._generator.random
        cancellable = sorted({*self._live, *self._ended})
        if cancellable and pick.random() < 0.4:
            gone = pick.choice(cancellable)
            self._live.pop(gone, None)
            self._ended.discard(gone)
            await self._send(rpc_pb2.WatchRequest(cancel_request=rpc_pb2.WatchCancelRequest(watch_id=gone)), gone)
        while len(self._live) < CONCURRENT_WATCHES:
            await self.start_watch()
        if pick.random() < 0.3:
            await self._send(rpc_pb2.WatchRequest(progress_request=rpc_pb2.WatchProgressRequest()), NO_WATCH)

    async def start_watch(self, create: rpc_pb2.WatchCreateRequest | None = None) -> None:
        """Start one on both, a random one unless it is given; its id is the next one."""
        watch_id, self._next_watch = self._next_watch, self._next_watch + 1
        create = create or self._generator.watch(watch_id)
        create.watch_id = watch_id
        present = create.start_revision == 0 or create.start_revision > self._generator.revision
        self._live[watch_id] = present
        if not present and create.start_revision >= self._generator.compacted:
            self._past[watch_id] = create.start_revision
        await self._send(rpc_pb2.WatchRequest(create_request=create), watch_id)
        if 0 < create.start_revision < self._generator.compacted:
            await self._cancelled(watch_id)
        await self._settled(watch_id)
        if all(response.canceled for response in self.left.log(watch_id).others[-1:]):
            self._live.pop(watch_id, None)  # refused, with its id or without

    async def _cancelled(self, watch_id: int) -> None:
        """Wait until a watch from before a compaction is cancelled: etcd does that about 100 ms later."""
        deadline = time.monotonic() + PATIENCE_S
        for side in (self.left, self.right):
            responses = side.log(watch_id).others  # nothing if the watch was refused
            while responses and not any(response.canceled for response in responses):
                if time.monotonic() > deadline:
                    return
                await side.wait_for_response(0.2)

    async def _send(self, request: rpc_pb2.WatchRequest, watch_id: int) -> None:
        """Send on both streams and wait until both have answered."""
        self._recent.append(("Watch", request))
        counts = [self._answers(side, watch_id) for side in (self.left, self.right)]
        await asyncio.gather(self.left.send(request), self.right.send(request))
        for side, count in zip((self.left, self.right), counts, strict=True):
            deadline = time.monotonic() + PATIENCE_S
            while self._answers(side, watch_id) == count:
                if time.monotonic() > deadline:
                    responses = [side.log(watch_id).others for side in (self.left, self.right)]
                    self._differ(f"{side.name} gave no answer on the watch stream to\n{request}", *responses)
                await side.wait_for_response(0.5)
        self._done += 1
        if not self._was_overtaken(watch_id):
            self._compare_others(watch_id)
        self._compare_others(NO_WATCH)

    def _answers(self, side: Side, watch_id: int) -> int:
        """Number of answers; a refused watch is answered without its id."""
        return len(side.log(watch_id).others) + len(side.log(NO_WATCH).others) * (watch_id != NO_WATCH)

    def _compare_others(self, watch_id: int) -> None:
        left, right = self.left.log(watch_id).others, self.right.log(watch_id).others
        # One may be ahead: `_settled` waits for the other.
        if any(one != two for one, two in zip(left, right, strict=False)):
            self._differ(f"the responses of watch {watch_id}", left, right)

    async def check_watches(self) -> None:
        """Check that both servers sent the same to all watches; raises `Difference`."""
        for watch_id in sorted(self.left.watches.keys() - self._overtaken):
            await self._settled(watch_id)
            canceled = any(response.canceled for response in self.left.log(watch_id).others)
            if canceled and self._live.pop(watch_id, None) is not None:
                self._ended.add(watch_id)  # by compaction: it can still be cancelled

    async def _settled(self, watch_id: int) -> None:
        """Check that a watch got the same events from both; the slower server is given time."""
        left, right = self.left.log(watch_id), self.right.log(watch_id)
        deadline = time.monotonic() + PATIENCE_S
        while len(left.events) != len(right.events) or len(left.others) != len(right.others):
            if time.monotonic() > deadline:
                break
            if self._was_overtaken(watch_id):
                return
            behind = self.left if len(left.events) < len(right.events) else self.right
            await behind.wait_for_response(0.2)
        if len(left.others) != len(right.others):
            self._differ(f"the responses of watch {watch_id}", left.others, right.others)
        if left.events != right.events:
            pairs = zip(left.events, right.events, strict=False)
            at = next((number for number, (one, two) in enumerate(pairs) if one != two), -1)
            shown = (left.events[at:][:2], right.events[at:][:2]) if at >= 0 else (left.events[-2:], right.events[-2:])
            self._differ(f"events of watch {watch_id}, from number {at} on", *shown)
        if self._live.get(watch_id) and left.batches != right.batches:
            self._differ(f"the batches of the events of watch {watch_id}", left.batches[-9:], right.batches[-9:])
        self._compare_others(watch_id)

    def _was_overtaken(self, watch_id: int) -> bool:
        """Whether only the reference has cancelled the watch, because of a compaction before it had caught up.

        etcd catches watches from the past up every 100 ms. A compaction within that time cancels one even if there was
        no event left to send, and whether it falls into that time is chance: such a watch is not compared any more.
        """
        left, right = self.left.log(watch_id), self.right.log(watch_id)
        start = self._past.get(watch_id)
        if start is None or left.events or any(response.compact_revision for response in right.others):
            return False
        if not any(response.compact_revision > start for response in left.others):
            return False
        self._overtaken.add(watch_id)
        self._live.pop(watch_id, None)
        return True


def _revision(answer: Answer) -> int:
    header = getattr(answer.message, "header", None)
    return header.revision if isinstance(header, rpc_pb2.ResponseHeader) else 0
