"""Bugs planted from outside, to see whether the simulator finds them. The product has no switches for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leasehold.ha.applied_state import LastWrite
from leasehold.ha.effects import Role

if TYPE_CHECKING:
    from leasehold.ha.machine import NodeMachine
    from leasehold.index.index import Index
    from leasehold.index.model import Object
    from leasehold.testing.sim.nodes import Run


def plant(bugs: frozenset[str], run: Run, role: Role) -> None:
    """Bend one machine at a change of its role."""
    if not bugs:
        return
    index, replica = run.machine.ctx.state.index, run.machine.ctx.state
    if role is Role.PROMOTING:
        if "no-wait" in bugs:
            replica.last_write = LastWrite(1 << 62)  # later than all that is read from now on, and never seen
        if "no-grace" in bugs:
            index.max_term_ms = 0
        if "forget-pin" in bugs:
            _forget_pins(index)


def bend(bugs: frozenset[str], index: Index) -> Index:
    """Bend a fresh index."""
    if "no-limbo" in bugs:
        let_go = index._let_go
        index._let_go = lambda replicas, size, n, now, quarantine_ms: let_go(replicas, size, n, now, 0)  # type: ignore[method-assign] # a bug from outside
    if "no-skip" in bugs:
        start = index.start_removal
        index.start_removal = lambda tenant, pattern, force: start(tenant, pattern, True)  # type: ignore[method-assign] # a bug from outside
    if "early-copy" in bugs:
        _show_copies_early(index)
    if "trust-owners" in bugs:
        index.distrust_owners = lambda before_n=0: None  # type: ignore[method-assign] # a bug from outside
    return index


def bend_machine(bugs: frozenset[str], machine: NodeMachine) -> None:
    """Bend a fresh machine."""
    if "no-right" not in bugs:
        return
    refresh = machine._refresh

    def serve_without_lease() -> None:
        refresh()
        if machine.role is Role.PRIMARY:
            machine.outbox.lease_until_ms = 1 << 62

    machine._refresh = serve_without_lease  # type: ignore[method-assign] # a bug from outside


def _forget_pins(index: Index) -> None:
    for entry in index.objects():
        entry.soft_pin_end = 0
        if entry.hard_pin:
            entry.hard_pin = False
            index.wheel.add(entry, entry.lease_end)


def _show_copies_early(index: Index) -> None:
    """Readers are told of copies that are still being written."""
    get = index.get

    def early(now_ms: int, tenant: bytes, key: bytes) -> Object | None:
        found = get(now_ms, tenant, key)
        job = index.copies.get((tenant, key))
        if found is None or job is None:
            return found
        return msgspec.structs.replace(found, replicas=found.replicas + job.replicas)

    index.get = early  # type: ignore[method-assign] # a bug from outside
