"""Bugs planted from outside, to see whether the simulator finds them. The product has no switches for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.ha.effects import Role
from leasehold.ha.replica import LastWrite

if TYPE_CHECKING:
    from leasehold.index.index import Index
    from leasehold.testing.sim.nodes import Run


def plant(bugs: frozenset[str], run: Run, role: Role) -> None:
    """Bend one machine at a change of its role."""
    if not bugs:
        return
    index, replica = run.machine.ctx.replica.index, run.machine.ctx.replica
    if role is Role.PROMOTING:
        if "no-wait" in bugs:
            replica.last_write = LastWrite(1 << 62)  # later than all that is read from now on, and never seen
        if "no-grace" in bugs:
            index.max_term_ms = 0


def bend(bugs: frozenset[str], index: Index) -> Index:
    """Bend a fresh index."""
    if "no-limbo" in bugs:
        let_go = index._let_go
        index._let_go = lambda replicas, size, n, now, limbo_ms: let_go(replicas, size, n, now, 0)  # type: ignore[method-assign] # a bug from outside
    return index
