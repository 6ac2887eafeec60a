"""Replay over a fuzzy snapshot, whose slices are of different ages."""

from __future__ import annotations

from zlib import crc32

from leasehold.base.invariants import ensure
from leasehold.index.errors import NotHere
from leasehold.index.model import Object


class Coverage:
    """Which records the loaded snapshot already contains.

    A record changes a key only if it is newer than that key's slice, and changes what has no key (segments, clients,
    tasks, quarantine) only if it is newer than the last slice. During replay a record may name an object that a slice
    no longer had: it is skipped.

    Invariant: no slice is newer than the last one. `tables_n` is None once replay has passed the last slice.
    """

    __slots__ = ("keyless_n", "placeless", "tables_n")

    def __init__(self) -> None:
        self.tables_n: list[int] | None = None  # for each table, the last record that its slice contains
        self.keyless_n = 0  # the same for what has no key
        self.placeless: list[Object] | None = None  # during load and replay; see `take_placeless`

    def start(self, tables_n: list[int], keyless_n: int) -> None:
        """A snapshot with these slices was loaded."""
        self.keyless_n = keyless_n
        self.tables_n = tables_n if min(tables_n) < keyless_n else None

    def covers(self, n: int, key: bytes) -> bool:
        """Whether the slice of this key contains record `n`."""
        return self.tables_n is not None and n <= self.tables_n[crc32(key) & 16383]

    def covers_keyless(self, n: int) -> bool:
        """Whether the last slice contains record `n`."""
        return self.tables_n is not None and n <= self.keyless_n

    def missing(self, n: int, what: str) -> None:
        """Record `n` names an object that is not here: expected during replay only."""
        if self.tables_n is None:
            raise NotHere(f"record {n} ({what}) names an object that is not there: this node has diverged")

    def begin_load(self) -> None:
        """Collect loaded objects without a place from now on."""
        self.placeless = []

    def add_placeless(self, entry: Object) -> None:
        """An object lost its place to a newer owner in a later slice. A later record may still move it elsewhere."""
        if self.placeless is not None:
            self.placeless.append(entry)

    def advance(self, n: int) -> bool:
        """Record `n` was replayed; returns True once replay has reached the last slice."""
        if n < self.keyless_n:
            return False
        self.tables_n = None
        return True

    def take_placeless(self) -> list[Object]:
        """Replay has passed the last slice: the objects that were without a place at some moment."""
        taken, self.placeless = self.placeless or [], None
        return taken

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariant holds."""
        ensure(self.tables_n is None or max(self.tables_n) <= self.keyless_n, "the last slice is the newest")
