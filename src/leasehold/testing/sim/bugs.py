"""Bugs planted from outside, to check that the simulator finds them. The product has no switches for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leasehold.ha.applied_state import LastWrite
from leasehold.ha.effects import Role
from leasehold.index.index import Index
from leasehold.index.model import Object, Segment
from leasehold.index.owners import Owners
from leasehold.index.reads import Reads
from leasehold.index.removes import RangeRemoval, Removes
from leasehold.index.space.space import Space
from leasehold.testing.sim.adoption_bugs import bend_adoption
from leasehold.testing.sim.disk_bugs import bend_disks
from leasehold.testing.sim.drain_bugs import bend_drains
from leasehold.testing.sim.quota_bugs import bend_quotas

if TYPE_CHECKING:
    from leasehold.ha.machine import NodeMachine
    from leasehold.testing.sim.nodes import Run


def plant(bugs: frozenset[str], run: Run, role: Role) -> None:
    """Plant bugs into one machine when its role changes."""
    if not bugs:
        return
    index, replica = run.machine.ctx.state.index, run.machine.ctx.state
    if role is Role.PROMOTING:
        if "no-wait" in bugs:
            replica.last_write = LastWrite(1 << 62)  # newer than every epoch read from now on, and never seen
        if "no-grace" in bugs:
            index.clock.set_max_term(0)
        if "forget-pin" in bugs:
            _forget_pins(index)


def bend(bugs: frozenset[str], index: Index) -> Index:
    """Plant bugs into a new index."""
    if "no-quarantine" in bugs:
        index.space.__class__ = SpaceWithoutQuarantine
    if "no-skip" in bugs:
        index.removes.__class__ = ForcedRemoves
    if "early-copy" in bugs:
        index.reads.__class__ = ReadsOfUnfinishedCopies
    if "trust-owners" in bugs:
        index.owners.__class__ = TrustedOwners
    bend_quotas(bugs, index)
    bend_drains(bugs, index)
    bend_adoption(bugs, index)
    bend_disks(bugs, index)
    return index


def bend_machine(bugs: frozenset[str], machine: NodeMachine) -> None:
    """Plant bugs into a new machine."""
    if "no-lease" not in bugs:
        return
    refresh = machine._refresh

    def serve_without_lease() -> None:
        refresh()
        if machine.role is Role.PRIMARY:
            machine.outbox.lease_until_ms = 1 << 62

    machine._refresh = serve_without_lease  # type: ignore[method-assign] # a bug from outside


def _forget_pins(index: Index) -> None:
    for entry in index.catalog.objects():
        entry.set_soft_pin_end(0)
        if entry.extra is not None and entry.extra.hard_pin:
            entry.extra.hard_pin = False
            index.catalog.wheel.add(entry, entry.lease_end)


class SpaceWithoutQuarantine(Space):
    """Space is free as soon as it leaves its object."""

    __slots__ = ()

    def let_go(self, segment: Segment, offset: int, size: int, n: int, now: int, quarantine_ms: int) -> None:
        super().let_go(segment, offset, size, n, now, 0)


class ForcedRemoves(Removes):
    """Range removals take leased objects too."""

    __slots__ = ()

    def start_range(self, tenant: bytes, pattern: bytes, force: bool) -> RangeRemoval:
        return super().start_range(tenant, pattern, True)


class ReadsOfUnfinishedCopies(Reads):
    """Readers see copies that are still being written."""

    __slots__ = ()

    def get(self, now_ms: int, tenant: bytes, key: bytes) -> Object | None:
        found = super().get(now_ms, tenant, key)
        job = self._catalog.copies.get((tenant, key))
        if found is None or job is None:
            return found
        shown = msgspec.structs.replace(found, extra=None)
        shown.set_replicas(found.replicas + job.replicas)
        return shown


class TrustedOwners(Owners):
    """No owner of memory is waited for."""

    __slots__ = ()

    def distrust(self, before_n: int = 0) -> None:
        pass
