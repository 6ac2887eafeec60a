"""The objects that the naive model expects, and its judgement: an object that vanished was allowed to vanish."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.index.kit import KIB, STORAGE, T, spec
from tests.index.ledger import Claim, Ledger

from leasehold.index import Code, Index, IndexSettings, SegmentSpec

KEYS = [b"key-%d" % number for number in range(40)]
CLIENTS = [b"writer-client--%d" % number for number in range(3)]


@dataclass(slots=True)
class Version:
    size: int
    client: bytes
    put_seq: int
    started: int
    writer: list[Claim]
    complete: bool = False
    lease_end: int = 0
    soft_end: int = 0
    soft_ttl: int | None = None
    hard: bool = False
    group: bytes = b""
    upserts: bool = False


@dataclass
class Expected:
    """What should be there."""

    versions: dict[bytes, Version] = field(default_factory=dict)
    beside: dict[bytes, Version] = field(default_factory=dict)
    copying: dict[bytes, tuple[bytes, list[Claim]]] = field(default_factory=dict)


class Core:
    """An index and the model of it. Time is leader time of one epoch."""

    def __init__(self, index: Index, settings: IndexSettings, seed: int) -> None:
        self.index = index
        self.settings = settings
        self.random = Random(seed)
        self.ledger = Ledger()
        self.expected = Expected()
        self.now = 0
        self.counts: dict[str, int] = {}
        self.specs: dict[int, SegmentSpec] = {n: spec(n, size=32 * KIB) for n in (1, 2, 3)}
        self.mounted: set[int] = set()
        self.false_death = False
        for number in (1, 2):
            self._mount(number)

    def note(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def lease_of(self, version: Version) -> int:
        """A group shares its lease."""
        if not version.group:
            return version.lease_end
        everyone = [v.lease_end for v in self.expected.versions.values() if v.complete and v.group == version.group]
        return max([version.lease_end, *everyone, self.group_leases.get(version.group, 0)])

    @property
    def group_leases(self) -> dict[bytes, int]:
        """The longest lease that anyone of a group was given while the group had members."""
        return {name[1]: group.lease_end - self.index.clock.offset for name, group in self.index.leases.groups.items()}

    def reconcile(self) -> None:
        """An object that vanished without a command must have been allowed to vanish."""
        index, expected = self.index, self.expected
        for key, version in list(expected.versions.items()):
            entry = index.catalog.lookup(T, key)
            if entry is not None and entry.put_seq == version.put_seq:
                continue
            assert entry is None or entry.put_seq > version.put_seq
            if not version.complete:
                timed_out = self.now - version.started >= self.settings.put_release_ms
                assert timed_out or self.false_death, f"unfinished {key!r} vanished"
            elif not self.false_death:
                assert self.lease_of(version) <= self.now, f"{key!r} evicted under a lease"
                assert not version.hard, f"{key!r} evicted though pinned"
                assert version.soft_end <= self.now or self.settings.allow_evict_soft_pinned
                assert key not in expected.beside
                self.note("evicted")
            del expected.versions[key]
            expected.copying.pop(key, None)
            if key in expected.beside and entry is not None:
                expected.versions[key] = expected.beside.pop(key)  # without an old version it stands alone
        for key, version in list(expected.beside.items()):
            found = index.catalog.pending.get((T, key))
            if found is None or found.put_seq != version.put_seq:
                # Beside a version that lost its segment an upsert stands alone.
                assert self.now - version.started >= self.settings.put_release_ms or self.false_death
                del expected.beside[key]
        for key in list(expected.copying):
            if (T, key) not in index.catalog.copies:
                del expected.copying[key]
        self.false_death = False
        assert index.catalog.object_count == len(expected.versions)

    def _mount(self, number: int) -> None:
        assert self.index.mounts.mount(self.now, STORAGE, self.specs[number]).code == Code.OK
        self.mounted.add(number)

    def _replicas(self, key: bytes) -> tuple:  # type: ignore[type-arg]  # of replicas
        entry = self.index.catalog.lookup(T, key)
        return entry.replicas if entry is not None else ()
