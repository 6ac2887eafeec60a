"""Delete the metadata of dead transfer engines. Only the primary does it.

A process that is killed leaves its two keys behind, and readers would wait for an address that no one answers. The
rules, so that a live process never loses its entry:

- A name under which a client lends segments stays. The index ends the segments of a client that stops pinging.
- Other names are probed. An address that accepts a connection stays.
- An address that refuses connections for longer than the client TTL is dead: its host is up, its process is not.
- An address that does not answer at all may only be out of the primary's reach. If the primary saw it lend segments,
  it counts as dead after the client TTL; otherwise after a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from leasehold.base.errors import LeaseholdError
from leasehold.index.index import Index
from leasehold.node.service.metadata_owners import Probe, Registration, address_of, probe, registration_of
from leasehold.node.service.metadata_table import MetadataTable

log = structlog.get_logger("leasehold.metadata")

ROUND_S: Final = 1.0
PROBE_PAUSE_MS: Final = 10_000  # after a probe that was accepted; doubled each time, for the logs of live processes
PROBE_PAUSE_MAX_MS: Final = 600_000
UNREACHABLE_MS: Final = 86_400_000
PROBES_PARALLEL: Final = 32


class _Watched:
    """A name under which no client lends segments now."""

    __slots__ = ("bad_since_ms", "next_ms", "pause_ms")

    def __init__(self) -> None:
        self.next_ms = 0
        self.pause_ms = PROBE_PAUSE_MS
        self.bad_since_ms: int | None = None

    def accepted(self, now_ms: int) -> None:
        self.bad_since_ms = None
        self.next_ms = now_ms + self.pause_ms
        self.pause_ms = min(2 * self.pause_ms, PROBE_PAUSE_MAX_MS)

    def failed(self, now_ms: int, pause_ms: int) -> int:
        """Returns for how long it has failed."""
        if self.bad_since_ms is None:
            self.bad_since_ms = now_ms
        self.next_ms = now_ms + pause_ms
        return now_ms - self.bad_since_ms


class CleanupRules:
    """Which names to probe, and which of them are dead. Without a clock or I/O."""

    def __init__(self, client_ttl_ms: int) -> None:
        self._client_ttl_ms = client_ttl_ms
        self._watched: dict[Registration, _Watched] = {}
        self._lent: set[str] = set()

    def due(self, now_ms: int, registered: Iterable[Registration], lending: set[str]) -> list[Registration]:
        """The registrations to probe now. `lending` are the names and endpoints of all mounted segments."""
        known = set(registered)
        self._lent = {each.name for each in known if each.name in self._lent or each.name in lending}
        waiting = {each for each in known if each.name not in lending}
        self._watched = {each: self._watched.get(each) or _Watched() for each in waiting}
        return [each for each, watched in self._watched.items() if now_ms >= watched.next_ms]

    def probed(self, now_ms: int, registration: Registration, outcome: Probe) -> bool:
        """Returns whether the process of this registration is dead."""
        watched = self._watched[registration]
        if outcome is Probe.ACCEPTED:
            watched.accepted(now_ms)
            return False
        failed_ms = watched.failed(now_ms, self._client_ttl_ms // 4)
        sure = outcome is Probe.REFUSED or registration.name in self._lent
        return failed_ms >= (self._client_ttl_ms if sure else UNREACHABLE_MS)


class MetadataCleanup:
    """Runs the rules. `leads` returns whether this node is the primary, `now_ms` is its clock."""

    def __init__(
        self, table: MetadataTable, index: Callable[[], Index], leads: Callable[[], bool], now_ms: Callable[[], int]
    ) -> None:
        self._table = table
        self._index = index
        self._leads = leads
        self._now_ms = now_ms

    async def run(self) -> None:
        """Until cancelled."""
        rules: CleanupRules | None = None
        while True:
            if not self._leads():
                rules = None
            else:
                rules = rules or CleanupRules(self._index().settings.client_ttl_ms)
                await self._round(rules)
            await asyncio.sleep(ROUND_S)

    async def _round(self, rules: CleanupRules) -> None:
        keys = list(self._table.sizes)
        registered = {each for each in map(registration_of, keys) if each is not None}
        segments = self._index().space.segments.values()
        lending = {name for each in segments for name in (each.spec.name, each.spec.endpoint)}
        due = rules.due(self._now_ms(), registered, lending)
        for first in range(0, len(due), PROBES_PARALLEL):
            await asyncio.gather(*(self._check(rules, each) for each in due[first : first + PROBES_PARALLEL]))

    async def _check(self, rules: CleanupRules, registration: Registration) -> None:
        try:
            found = await self._table.find(registration.rpc_key)
            outcome = await probe(address_of(found.value) if found is not None else None)
            if not rules.probed(self._now_ms(), registration, outcome) or not self._leads():
                return
            revision = found.revision if found is not None else 0
            keys = (registration.rpc_key, registration.ram_key)
            if await self._table.delete_unless_changed(keys, registration.rpc_key, revision):
                log.info("deleted the metadata of a dead process", name=registration.name)
        except LeaseholdError as error:  # the store: the next round tries again
            log.debug("cannot clean up metadata", name=registration.name, error=str(error))
