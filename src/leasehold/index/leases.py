"""Leases of objects and groups: how long an object is protected (P2)."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.base.invariants import ensure
from leasehold.index.clock import LeaderClock
from leasehold.index.model import Group, Object
from leasehold.index.renewals import Renewals
from leasehold.index.settings import IndexSettings
from leasehold.index.tables import Name


class Leases:
    """When leases and pins expire, with grace and with the shared leases of groups.

    The stored `lease_end` is not the whole truth: an end from an older epoch counts as the end of the grace, and a
    member of a group is protected by the group's lease too. `end_of` has the answer.

    Invariants: every group has members, and every object with a group is a member of it.
    """

    __slots__ = ("_clock", "_renew_pins", "_renewals", "_soft_pin_ttl_ms", "_urgent_left_ms", "expiry", "groups")

    def __init__(self, settings: IndexSettings, clock: LeaderClock, renewals: Renewals) -> None:
        self._clock = clock
        self._renewals = renewals
        self._urgent_left_ms = settings.urgent_left_ms
        self._renew_pins = settings.soft_pin_renew_on_read
        self._soft_pin_ttl_ms = settings.soft_pin_ttl_ms
        self.expiry = settings.eviction_policy == "expiry"
        self.groups: dict[Name, Group] = {}  # by tenant and group; they share a lease and are evicted together

    def end_of(self, entry: Object) -> int:
        """When the object's lease has surely expired, in internal time: with grace, and with its group's lease."""
        clock = self._clock
        end = entry.lease_end
        if end < clock.older_than and end < clock.grace_end:
            end = clock.grace_end
        if entry.extra is not None and entry.extra.group:
            group = self.groups.get((entry.tenant, entry.extra.group))
            if group is not None:
                shared = self.shared_end(group)
                if shared > end and not (self.expiry and self._had_expired(entry, end, group)):
                    end = shared
        return end

    @staticmethod
    def _had_expired(entry: Object, end: int, group: Group) -> bool:
        """Policy `expiry`: whether it had expired when a pinned member of its group was read.

        Standbys have dropped it by then, so the group's new lease must not bring it back.
        """
        return max(end, entry.soft_pin_end) <= group.revived and not entry.hard_pin and entry.visible

    def shared_end(self, group: Group) -> int:
        """A group's lease with grace. It also covers members that joined later."""
        end, clock = group.lease_end, self._clock
        return clock.grace_end if end < clock.older_than and end < clock.grace_end else end

    def end_of_life(self, entry: Object) -> int:
        """Policy `expiry`: when the object expires for readers."""
        return max(self.end_of(entry), entry.soft_pin_end)

    def has_expired(self, entry: Object, now: int) -> bool:
        """Policy `expiry`: whether the object has expired, and so is absent for readers."""
        return not entry.hard_pin and entry.visible and self.end_of_life(entry) <= now

    # --- renewing ---

    def renew(self, entry: Object, now: int, end: int) -> None:
        """The first renewal since the last unlogged batch, or one that needs more than the hot path does.

        The `dirty` flag stays unset where every renewal must come here (groups, soft pins renewed by reads).
        """
        clock, known_end = self._clock, entry.lease_end
        if known_end < clock.older_than and clock.grace_end > end:
            end = clock.grace_end
        entry.lease_end = end
        slow, extra = False, entry.extra
        if extra is not None and extra.group:
            slow = True
            group = self.groups.get((entry.tenant, extra.group))
            if group is not None:
                shared = self.shared_end(group)
                if shared <= now:
                    group.revived = now
                group.lease_end = max(shared, end)
        if extra is not None and self._renew_pins and extra.soft_pin_end > now:
            slow = True
            entry.set_soft_pin_end(max(entry.soft_pin_end, now + self._soft_pin_ttl_ms))
        if 0 <= known_end - now < self._urgent_left_ms:
            self._renewals.hurry()
        self._renewals.renewed(entry, slow)

    def renewed_by_leader(self, entry: Object, end: int, soft_pin_end: int | None) -> None:
        """Standby: the leader has renewed a lease, and a soft pin unless that is None."""
        if end > entry.lease_end:
            entry.lease_end = end
            if entry.group:
                group = self.groups.get((entry.tenant, entry.group))
                if group is not None:
                    group.lease_end = max(self.shared_end(group), end)
        if soft_pin_end is not None:
            entry.set_soft_pin_end(max(entry.soft_pin_end, soft_pin_end))

    def move_soft_pins(self, objects: Iterable[Object], by_ms: int) -> None:
        """The internal axis of this node starts later (see `LeaderClock.begin_after_death`)."""
        for entry in objects:
            if end := entry.soft_pin_end:
                entry.set_soft_pin_end(end + by_ms)

    # --- groups ---

    def join(self, entry: Object) -> None:
        """An object with a group was added. The group's lease is at least its members': a snapshot has no groups."""
        group = self.groups.setdefault((entry.tenant, entry.group), Group(entry.lease_end, {}))
        group.lease_end = max(self.shared_end(group), entry.lease_end)
        group.members[entry.key] = None

    def leave(self, tenant: bytes, group_name: bytes, key: bytes) -> None:
        """An object with a group was deleted."""
        name = (tenant, group_name)
        group = self.groups.get(name)
        if group is not None:
            group.members.pop(key, None)
            if not group.members:
                del self.groups[name]

    def members_of(self, entry: Object) -> list[bytes]:
        """The keys of an object's group."""
        group = self.groups.get((entry.tenant, entry.group))
        return list(group.members) if group is not None else []

    def check(self, objects: Iterable[Object]) -> None:
        """Raise `InvariantBroken` unless the invariants hold for the objects of the index."""
        ensure(all(group.members for group in self.groups.values()), "a group has members")
        for entry in objects:
            if entry.group:
                known = entry.key in self.groups[(entry.tenant, entry.group)].members
                ensure(known, "a member of its group", entry.key)
