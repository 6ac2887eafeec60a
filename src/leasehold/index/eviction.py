"""Making room, in small pieces, between requests."""

from __future__ import annotations

from leasehold.base.limits import inline_evictions_max
from leasehold.index.model import Object, PutConfig
from leasehold.index.placement import Placement
from leasehold.index.records import Extent

_RIPEN_STEP = 256
_BUSY_AGAIN_MS = 1_000


class Eviction(Placement):
    """Evictions need no records: whoever gets the space next has one, and claims displace (docs/journal.md).

    Only objects whose lease has ended, the oldest end first; soft pins last or never, hard pins never. All replicas
    here are in memory: an object whose memory replicas go is gone.
    """

    def _evict_some(self, now: int, budget: int) -> bool:
        """One piece of a round; True if there is more to do at once."""
        if self.expiry:
            return self._evict_ended(now, budget)
        if self.evict_to_bytes < 0:
            if self.used_bytes <= self.settings.eviction_high_watermark * self.total_bytes or not self.total_bytes:
                return False
            share = max(0.0, self.settings.eviction_high_watermark - self.settings.eviction_ratio)
            self.evict_to_bytes = int(share * self.total_bytes)
        goal, ripe, consider = self.evict_to_bytes, self.wheel.ripe, self._consider
        for _ in range(budget):
            if self.used_bytes <= goal:
                self.evict_to_bytes = -1
                return False
            if ripe:
                consider(ripe.popleft(), now, False, True)
            elif not self._consider_next(now):
                self.evict_to_bytes = -1  # nothing can go now: leased, pinned or unfinished
                return False
        return True

    def _evict_ended(self, now: int, budget: int) -> bool:
        """Policy `expiry`: whatever is past its end."""
        ripe = self.wheel.ripe
        for _ in range(budget):
            if not ripe and not self.wheel.ripen(now, _RIPEN_STEP):
                return False
            self._consider(ripe.popleft(), now)
        return True

    def _consider_next(self, now: int, in_turn: bool = True) -> bool:
        """Look at one object, and evict it (or its group) if it may go; False if there is none to look at.

        One look, not one eviction: of objects that were read meanwhile there may be a million in a row.
        """
        ripe = self.wheel.ripe
        if ripe or self.wheel.ripen(now, _RIPEN_STEP):
            self._consider(ripe.popleft(), now, in_turn=in_turn)
            return True
        if self.soft:
            self._consider(self.soft.popleft(), now, soft_pins_too=True)
            return True
        return False

    def _consider(self, entry: Object, now: int, soft_pins_too: bool = False, in_turn: bool = False) -> bool:
        """Evict it if that is allowed; else put it where it will be found again. True if something was evicted.

        `in_turn`: not yet if it was read since it was put into its bucket, even if that lease has ended, too.
        """
        if not entry.visible or (self.ending and not self.settle(entry)):
            return False  # gone meanwhile
        end = entry.lease_end
        if end < self.older_than or entry.group:
            end = self.lease_end_of(entry)
        if end > now:
            self.wheel.add_later(entry, end, now)
            return False
        if in_turn and self.wheel.is_out_of_turn(entry):
            self.wheel.add(entry, end)
            return False
        if entry.soft_pin_end > now and not soft_pins_too:
            if self.expiry or not self.settings.allow_evict_soft_pinned:
                self.wheel.add_later(entry, entry.soft_pin_end, now)
            else:
                self.soft.append(entry)
            return False
        if (self.copies or self.pending) and self._busy(entry):
            self.wheel.add(entry, now + _BUSY_AGAIN_MS)
            return False
        if entry.group:
            self._evict_companions(entry, now)
        self._evict(entry)
        return True

    def _busy(self, entry: Object) -> bool:
        """A copy or an upsert of it is being written."""
        if not self.copies and not self.pending:
            return False
        name = (entry.tenant, entry.key)
        return name in self.copies or name in self.pending

    def _after_busy(self, entry: Object) -> int:
        """What "not now" shows: the object as it is, and the copy or upsert of it that is being written."""
        name = (entry.tenant, entry.key)
        beside, job = self.pending.get(name), self.copies.get(name)
        return max(entry.changed_n, beside.changed_n if beside is not None else 0, job.started_n if job else 0)

    def _evict_companions(self, entry: Object, now: int) -> None:
        """The rest of a group goes with its first, as far as nothing else protects it."""
        group = self.groups.get((entry.tenant, entry.group))
        for key in list(group.members) if group else ():
            other = self.lookup(entry.tenant, key)
            if other is None or other is entry or not other.visible or other.hard_pin or self._busy(other):
                continue
            if self.lease_end_of(other) <= now and other.soft_pin_end <= now:
                self._evict(other)

    def _evict(self, entry: Object, hint: bool = True) -> None:
        for replica in entry.replicas:
            self.used_bytes -= replica.segment.space.release(replica.offset)
            replica.segment.evicted = True
        entry.replicas = ()
        self._delete(entry)
        if entry.changed_n > self.durable_n:
            # Its end is not durable yet, and then neither is it that the version before is gone: a miss shows that.
            self._remember_removed((entry.tenant, entry.key), entry.changed_n)
        self.evicted_count += 1
        self.evicted_bytes += entry.size
        if hint:
            self.hints.append(entry)
            self.hinted_bytes += entry.size
            if self.hinted_bytes * 2 > self.total_bytes - self.used_bytes:
                # Half of what is free would be ghosts to a successor, which could not give it out: tell soon.
                self.urgent = True

    def _place_or_evict(self, now: int, size: int, config: PutConfig) -> tuple[Extent, ...]:
        """Places for an object; if there are none, evict a little and try again, and let a round follow."""
        places = self._place(size, config)
        if places or size > self._largest_bytes(config.native):
            return places
        if self.quarantine and self.quarantine[0][0] <= now:
            self._free_limbo(now)
            places = self._place(size, config)
            if places:
                return places
        if not self.expiry and self.total_bytes:
            ratio = self.settings.eviction_ratio
            self.evict_to_bytes = max(0, self.used_bytes - max(size, int(ratio * self.total_bytes)))
        freed, goal = 0, size
        for _ in range(inline_evictions_max):
            before = self.used_bytes
            if self.expiry or not self._consider_next(now, in_turn=False):
                break
            freed += before - self.used_bytes
            if freed >= goal:
                places = self._place(size, config)
                if places:
                    return places
                goal = freed + size  # in pieces: more is needed until some of them grow together
        return self._place(size, config)
