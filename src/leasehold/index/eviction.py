"""Eviction: making space, in small steps, between requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from leasehold.base.limits import inline_evictions_max
from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.leases import Leases
from leasehold.index.log import Log
from leasehold.index.model import Object, PutConfig
from leasehold.index.offloads import Offloads
from leasehold.index.placement import Placement
from leasehold.index.records import Extent
from leasehold.index.renewals import Renewals
from leasehold.index.settings import IndexSettings
from leasehold.index.space.space import Space

_RIPEN_STEP = 256
_BUSY_AGAIN_MS = 1_000


class Eviction:
    """Evicts objects whose lease has expired, the oldest end first; soft pins last or never, hard pins never.

    Evictions need no records: the record that hands out the space next displaces the object on every other node (see
    `Space`). An object that loses its memory replicas is deleted from the catalog; a copy on disk stays (`DiskTier`).
    """

    __slots__ = (
        "_catalog", "_clock", "_evict_soft_pinned", "_evict_to_bytes", "_high_watermark", "_leases", "_log",
        "_offloads", "_placement", "_ratio", "_renewals", "_round_from", "_soft", "_space",
        "evicted_bytes", "evicted_count", "rounds", "rounds_without_effect",
    )  # fmt: skip

    def __init__(
        self,
        settings: IndexSettings,
        clock: LeaderClock,
        log: Log,
        space: Space,
        renewals: Renewals,
        leases: Leases,
        catalog: Catalog,
        placement: Placement,
        offloads: Offloads,
    ) -> None:
        self._clock = clock
        self._log = log
        self._space = space
        self._renewals = renewals
        self._leases = leases
        self._catalog = catalog
        self._placement = placement
        self._offloads = offloads if settings.enable_offload else None
        self._high_watermark = settings.eviction_high_watermark
        self._ratio = settings.eviction_ratio
        self._evict_soft_pinned = settings.allow_evict_soft_pinned and not leases.expiry
        self._soft: deque[Object] = deque()  # soft-pinned objects whose lease has expired
        self._evict_to_bytes = -1  # the goal of the current round; -1: there is no round
        self._round_from = 0  # `evicted_count` when the current round began
        self.evicted_count = 0
        self.evicted_bytes = 0
        self.rounds = 0
        self.rounds_without_effect = 0  # finished rounds that evicted no object

    # --- rounds ---

    def start_round(self, to_bytes: int) -> None:
        """Evict until at most `to_bytes` are used, with the next calls of `evict_some`."""
        if self._evict_to_bytes < 0:
            self.rounds += 1
            self._round_from = self.evicted_count
        self._evict_to_bytes = to_bytes

    def _end_round(self) -> None:
        self._evict_to_bytes = -1
        self.rounds_without_effect += self.evicted_count == self._round_from

    def evict_some(self, now: int, budget: int) -> bool:
        """One step of a round: look at `budget` objects at most. Returns True if there is more to do."""
        if self._leases.expiry:
            return self._evict_expired(now, budget)
        space = self._space
        if self._evict_to_bytes < 0:
            if space.used_bytes <= self._high_watermark * space.total_bytes or not space.total_bytes:
                return False
            self.start_round(int(max(0.0, self._high_watermark - self._ratio) * space.total_bytes))
        goal, consider, wheel = self._evict_to_bytes, self._consider, self._catalog.wheel
        ripe, take_ripe = wheel.ripe, wheel.take_ripe
        for _ in range(budget):
            if space.used_bytes <= goal:
                self._end_round()
                return False
            if ripe:
                consider(take_ripe(), now, False, True)
            elif not self._consider_next(now):
                self._end_round()  # nothing can be evicted now: leased, pinned or unfinished
                return False
        return True

    def _evict_expired(self, now: int, budget: int) -> bool:
        """Policy `expiry`: evict every expired object."""
        wheel = self._catalog.wheel
        for _ in range(budget):
            if not wheel.ripe and not wheel.ripen(now, _RIPEN_STEP):
                return False
            self._consider(wheel.take_ripe(), now)
        return True

    def _consider_next(self, now: int, in_turn: bool = True) -> bool:
        """Look at one object, and evict it (or its group) if allowed. Returns False if there is none to look at.

        One look, not one eviction: there may be a million objects in a row that were read meanwhile.
        """
        wheel = self._catalog.wheel
        if wheel.ripe or wheel.ripen(now, _RIPEN_STEP):
            self._consider(wheel.take_ripe(), now, in_turn=in_turn)
            return True
        if self._soft:
            self._consider(self._soft.popleft(), now, soft_pins_too=True)
            return True
        return False

    def _consider(self, entry: Object, now: int, soft_pins_too: bool = False, in_turn: bool = False) -> None:
        """Evict an object if allowed; else put it where it will be found again.

        `in_turn`: not yet if it was read since it was put into its bucket, even if that lease has expired too.
        """
        catalog = self._catalog
        if not entry.visible or (catalog.ending and not catalog.settle(entry)):
            return  # deleted meanwhile
        wheel = catalog.wheel
        end = entry.lease_end
        extra = entry.extra
        if end < self._clock.older_than or extra is not None:
            end = self._leases.end_of(entry)
        if end > now:
            wheel.add_later(entry, end, now)
        elif in_turn and wheel.is_out_of_turn(entry):
            wheel.add(entry, end)
        elif extra is not None and extra.soft_pin_end > now and not soft_pins_too:
            if self._evict_soft_pinned:
                self._soft.append(entry)
            else:
                wheel.add_later(entry, extra.soft_pin_end, now)
        elif self._is_in_use(entry, now):
            wheel.add(entry, now + _BUSY_AGAIN_MS)
        else:
            if extra is not None and extra.group:
                self._evict_companions(entry, now)
            self.evict(entry)

    def _is_in_use(self, entry: Object, now: int) -> bool:
        """Whether a copy or an upsert is under way, or it is being written to disk, or must be before."""
        catalog = self._catalog
        if (catalog.copies or catalog.pending) and catalog.is_busy(entry):
            return True
        return self._offloads is not None and self._offloads.keeps(entry, now)

    def _evict_companions(self, entry: Object, now: int) -> None:
        """Evict the other members of a group with the first, unless something else protects them."""
        for key in self._leases.members_of(entry):
            other = self._catalog.lookup(entry.tenant, key)
            if other is None or other is entry or not other.visible or other.hard_pin or self._catalog.is_busy(other):
                continue
            if self._offloads is not None and self._offloads.keeps(other, now):
                continue
            if self._leases.end_of(other) <= now and other.soft_pin_end <= now:
                self.evict(other)

    # --- one object ---

    def evict(self, entry: Object, hint: bool = True) -> None:
        """Evict an object. `hint`: report it to the standbys."""
        space, log = self._space, self._log
        if entry.segment is not None:
            space.evict(entry.segment, entry.offset)
        else:
            for replica in entry.replicas:
                space.evict(replica.segment, replica.offset)
        self._catalog.evict(entry)
        if entry.changed_n > log.durable_n:
            # The end of this put is not durable yet, and so neither is the end of the version before: a miss shows it.
            log.remember_removed((entry.tenant, entry.key), entry.changed_n)
        self.evicted_count += 1
        self.evicted_bytes += entry.size
        if hint:
            self._renewals.hint(entry, space.total_bytes - space.used_bytes)

    def lookup_live(self, now: int, tenant: bytes, key: bytes) -> Object | None:
        """The object of this name. Under policy `expiry` an expired one is evicted now and not returned."""
        entry = self._catalog.lookup(tenant, key)
        if entry is None or not self._leases.expiry or not self._leases.has_expired(entry, now):
            return entry
        if self._catalog.is_busy(entry):
            return entry
        self.evict(entry)
        return None

    def place_or_evict(self, now: int, size: int, config: PutConfig) -> tuple[Extent, ...]:
        """Extents for an object. If there are none, evict a little, try again, and start a round."""
        space, placement = self._space, self._placement
        places = placement.place(size, config)
        if places or size > placement.largest_bytes(config.native):
            return places
        if space.quarantine.has_expired(now):
            space.free_quarantined(now)
            places = placement.place(size, config)
            if places:
                return places
        if not self._leases.expiry and space.total_bytes:
            self.start_round(max(0, space.used_bytes - max(size, int(self._ratio * space.total_bytes))))
        freed, goal = 0, size
        for _ in range(inline_evictions_max):
            before = space.used_bytes
            if self._leases.expiry or not self._consider_next(now, in_turn=False):
                break
            freed += before - space.used_bytes
            if freed >= goal:
                places = placement.place(size, config)
                if places:
                    return places
                goal = freed + size  # the freed extents are apart: free more until some of them are adjacent
        return placement.place(size, config)

    # --- a standby ---

    def expire_until(self, last: int, every: int) -> Iterator[None]:
        """Policy `expiry`, standby: evict every object that expired up to this time, with a pause after `every` looks.

        The leader, whose clock has passed this time and all of whose renewals were applied, has evicted them too.
        """
        catalog = self._catalog
        wheel = catalog.wheel
        wheel.ripen_all(last)  # once: objects may be put back into a bucket that has begun
        take_ripe = wheel.take_ripe
        for place in range(1, len(wheel.ripe) + 1):
            if place % every == 0:
                yield
            entry = take_ripe()
            if not entry.visible or (catalog.ending and not catalog.settle(entry)):
                continue
            end = self._leases.end_of_life(entry)
            if end > last or catalog.is_busy(entry):
                wheel.add(entry, max(end, last + 1))
            elif entry.soft_pin_end:
                # Reads may have renewed its pin, unknown here, for longer than any gap's grace: only a hint evicts it.
                wheel.add(entry, last + 1 + self._clock.max_term_ms)
            else:
                self.evict(entry, hint=False)
