"""All cases, in one list."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from msgspec import Struct

from leasehold.coord.api import Coord
from leasehold.testing.conformance import keys, leases, txns, watches
from leasehold.testing.conformance.kit import Kit


class Case(Struct, frozen=True):
    name: str
    body: Callable[[Kit], Awaitable[None]]
    slow: bool = False  # waits for time to pass; such cases may run side by side

    def __str__(self) -> str:
        return self.name


def _cases() -> tuple[Case, ...]:
    found = []
    for module in (keys, txns, leases, watches):
        for name, member in vars(module).items():
            if not inspect.iscoroutinefunction(member) or member.__module__ != module.__name__:
                continue
            if list(inspect.signature(member).parameters) == ["kit"]:
                title = f"{module.__name__.rpartition('.')[2]}: {name.replace('_', ' ')}"
                found.append(Case(title, member, hasattr(member, "slow")))
    return tuple(found)


CASES = _cases()


async def run(case: Case, coord: Coord) -> None:
    """Run one case on `coord`; raises `NotConforming` with what was expected and what was found."""
    await case.body(Kit(coord))
