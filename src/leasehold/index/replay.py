"""Replay over a fuzzy snapshot, whose slices are of different ages.

A record touches a key only if it is newer than that key's slice, and what has no key only if it is newer than the last
slice. While replaying, a record may speak of an object that a slice no longer had: it is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from leasehold.index.claims import Claims
from leasehold.index.model import Object, Quarantined
from leasehold.index.settings import IndexSettings
from leasehold.index.state import NotHere


class Replay(Claims):
    """What the snapshot covers already, and what waits until replay has come to the end of it."""

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int]) -> None:
        super().__init__(settings, choose)
        self.covered_n: list[int] | None = None  # up to which record each table already is; None when past all of them
        self.keyless_n = 0  # and what has no key
        self.homeless: list[Object] | None = None  # while a snapshot is loaded and replayed (see `_end_homeless`)
        self.limbo_to_come: list[Quarantined] = []  # of the last slice: it has its place when replay has come that far

    def _covers_keyless(self, n: int) -> bool:
        return self.covered_n is not None and n <= self.keyless_n

    def _covers(self, n: int, key: bytes) -> bool:
        return self.covered_n is not None and n <= self.covered_n[crc32(key) & 16383]

    def _missing(self, n: int, what: str) -> None:
        if self.covered_n is None:
            raise NotHere(f"record {n} ({what}) names an object that is not there: this node has diverged")

    def _version(self, n: int, tenant: bytes, key: bytes, put_seq: int, what: str) -> Object | None:
        if self._covers(n, key):
            return None
        entry = self.lookup(tenant, key)
        if entry is None or entry.put_seq != put_seq:
            self._missing(n, what)
            return None
        return entry

    def _replayed(self, n: int) -> None:
        """Record `n` is applied over a snapshot: once past its last slice, what has waited for that is done."""
        if n >= self.keyless_n:
            self.covered_n = None
            self._end_homeless()
            self._place_limbo()

    def _end_homeless(self) -> None:
        """Replay has come to the last slice: what has no place by now is gone.

        Not before: of what lost its place to somebody in a later slice, a record between the two may say that it had
        moved elsewhere first.
        """
        for entry in self.homeless or ():
            if not entry.replicas:
                self._drop(entry, self.last_n, self.latest, 0)
        self.homeless = None

    def _place_limbo(self) -> None:
        """Replay has come to the last slice: its limbo takes its places, where nothing newer is.

        Not before: a record between the slices may say that an object had left a place before it came to rest.
        """
        for entry in sorted(self.limbo_to_come, key=lambda one: one.n):
            segment = entry.segment
            there = segment.space.owners.get(entry.offset)
            again = isinstance(there, Quarantined) and there.n == entry.n
            if not segment.unmounted and not again and self._claim(segment, entry.offset, entry, entry.n):
                self._begin_rest(entry)
        self.limbo_to_come = []
