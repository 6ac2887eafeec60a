"""A naive model of the index: one dict, no allocator, no wheel, no records. It predicts every answer.

What it cannot predict, it judges: which object was evicted (it must have been allowed), and where an object was placed
(the ledger says whether those bytes were free to give).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.index.kit import KIB, STORAGE, T, spec
from tests.index.ledger import Claim, Ledger

from leasehold.base.codes import ClientStatus
from leasehold.index import Code, Index, IndexSettings, PutConfig, SegmentSpec

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


class Driver:
    """Random commands against an index and the model at once. Time is leader time of one epoch."""

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

    # --- one step ---

    def step(self) -> None:
        actions = (
            (self.put_start, 20), (self.put_end, 22), (self.put_revoke, 2), (self.upsert_start, 8), (self.get, 20),
            (self.exist_many, 6), (self.remove, 6), (self.remove_range, 1), (self.copy, 3), (self.end_copy, 3),
            (self.tick, 12), (self.segments, 1), (self.bad_input, 2), (self.replica_clear, 1), (self.leap, 0.1),
        )  # fmt: skip
        (action,) = self.random.choices([a for a, _ in actions], [w for _, w in actions])
        action()
        self.index.work(self.now, 8)
        self.reconcile()

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
        return {name[1]: group.lease_end - self.index.offset for name, group in self.index.groups.items()}

    def reconcile(self) -> None:
        """What has gone without being asked must have been allowed to go."""
        index, expected = self.index, self.expected
        for key, version in list(expected.versions.items()):
            entry = index.lookup(T, key)
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
                expected.versions[key] = expected.beside.pop(key)  # its old version is gone: it stands alone
        for key, version in list(expected.beside.items()):
            found = index.pending.get((T, key))
            if found is None or found.put_seq != version.put_seq:
                # Beside a version that lost its segment an upsert stands alone.
                assert self.now - version.started >= self.settings.put_release_ms or self.false_death
                del expected.beside[key]
        for key in list(expected.copying):
            if (T, key) not in index.copies:
                del expected.copying[key]
        self.false_death = False
        assert index.object_count == len(expected.versions)

    # --- puts ---

    def config(self) -> tuple[PutConfig, int | None]:
        random = self.random
        soft = random.choice((0, 0, 0, 0, 1, 2))
        ttl = random.choice((None, 500, 5_000)) if soft == 1 else None
        config = PutConfig(
            replicas=random.choice((1, 1, 1, 2, 3)),
            soft_pin=soft,
            soft_pin_ttl_ms=ttl,
            hard_pin=random.random() < 0.04,
            group=random.choice((b"", b"", b"", b"", b"g1", b"g2")),
            preferred_segments=random.choice(((), (), ("seg2",), ("nowhere",))),
        )
        return config, (ttl if ttl is not None else self.settings.soft_pin_ttl_ms) if soft == 1 else None

    def put_start(self) -> None:
        random = self.random
        key, client = random.choice(KEYS), random.choice(CLIENTS)
        size = random.choice((1, 64, 100, 1000, 2048, 4000, 8192))
        config, soft_ttl = self.config()
        old = self.expected.versions.get(key)
        code, entry, after = self.index.put_start(self.now, client, T, key, size, config)
        if old is not None and self.index.lookup(T, key) is not None and code == Code.EXISTS:
            assert old.complete or self.now - old.started < self.settings.put_discard_ms
            self.note("exists")
            return
        if code == Code.NO_SPACE:
            self.note("no space")
            return
        assert code == Code.OK, code
        assert entry is not None
        assert after == entry.put_seq
        if old is not None:
            gone = self.index.lookup(T, key) is entry
            assert gone
            if not old.complete:
                assert self.now - old.started >= self.settings.put_discard_ms
            del self.expected.versions[key]
        self._started(key, client, size, config, soft_ttl, entry.put_seq)
        self.note("put_start")

    def _started(
        self, key: bytes, client: bytes, size: int, config: PutConfig, soft_ttl: int | None, put_seq: int
    ) -> Version:
        entry = self.index.unfinished[put_seq]
        assert 1 <= len(entry.replicas) <= config.replicas
        assert len({replica.segment.incarnation for replica in entry.replicas}) == len(entry.replicas)
        gives_up = self.now + self.settings.put_release_ms
        writer = self.ledger.handed_out(self.now, entry.replicas, size, f"{key!r} (put {put_seq})", gives_up)
        version = Version(
            size, client, put_seq, self.now, writer, soft_ttl=soft_ttl, hard=config.hard_pin, group=config.group
        )  # fmt: skip
        self.expected.versions[key] = version
        return version

    def upsert_start(self) -> None:
        random = self.random
        key, client = random.choice(KEYS), random.choice(CLIENTS)
        old = self.expected.versions.get(key)
        size = old.size if old is not None and random.random() < 0.6 else random.choice((64, 1000, 4000))
        config, soft_ttl = self.config()
        leased = old is not None and old.complete and self.lease_of(old) > self.now
        places = {(r.segment.incarnation, r.offset) for r in self._replicas(key)}
        code, entry, _ = self.index.upsert_start(self.now, client, T, key, size, config)
        if code in (Code.NO_SPACE, Code.NOT_READY):
            self.note(f"upsert {code.name}")
            if code == Code.NO_SPACE and old is not None and self.index.lookup(T, key) is None:
                assert not leased
            return
        assert code == Code.OK
        assert entry is not None
        new_places = {(r.segment.incarnation, r.offset) for r in entry.replicas}
        beside = self.index.pending.get((T, key)) is entry
        if leased:
            assert beside, "an upsert under a lease is beside"
        if places & new_places:
            assert not leased, "P2: written in place under a lease"
        if old is not None and beside:
            assert old.complete
            kept = self.expected.versions[key]
            version = self._started(key, client, size, config, soft_ttl, entry.put_seq)
            self.expected.versions[key] = kept
            self.expected.beside[key] = version
        else:
            self.expected.versions.pop(key, None)
            version = self._started(key, client, size, config, soft_ttl, entry.put_seq)
            if old is not None and old.complete and config.soft_pin == 0 and places & new_places:
                version.soft_end = old.soft_end
        version.upserts = True
        self.note("upsert beside" if beside else "upsert over")

    def _replicas(self, key: bytes) -> tuple:  # type: ignore[type-arg]  # of replicas
        entry = self.index.lookup(T, key)
        return entry.replicas if entry is not None else ()

    def put_end(self) -> None:
        random, expected = self.random, self.expected
        unfinished = [k for k, v in expected.versions.items() if not v.complete] + list(expected.beside)
        key = random.choice(unfinished) if unfinished and random.random() < 0.9 else random.choice(KEYS)
        version = expected.beside.get(key) or expected.versions.get(key)
        client = version.client if version is not None and random.random() < 0.95 else random.choice(CLIENTS)
        code, _ = self.index.put_end(self.now, client, T, key)
        if version is None:
            assert code == Code.NOT_FOUND
        elif version.client != client:
            assert code == Code.ILLEGAL_CLIENT
        else:
            assert code == Code.OK
            if version.complete:
                return
            if key in expected.beside:
                old = expected.versions.get(key)
                if old is not None and version.soft_ttl is None:
                    version.soft_end = self._soft_end_in_index(key)
                expected.versions[key] = expected.beside.pop(key)
            for claim in version.writer:
                claim.until = 0  # the writer has said that it is done
            version.complete = True
            version.lease_end = self.now
            if version.soft_ttl is not None:
                version.soft_end = self.now + version.soft_ttl
            else:
                version.soft_end = self._soft_end_in_index(key)
            self.note("put_end")

    def _soft_end_in_index(self, key: bytes) -> int:
        entry = self.index.lookup(T, key)
        return 0 if entry is None or not entry.soft_pin_end else entry.soft_pin_end - self.index.offset

    def put_revoke(self) -> None:
        random, expected = self.random, self.expected
        unfinished = [k for k, v in expected.versions.items() if not v.complete] + list(expected.beside)
        key = random.choice(unfinished) if unfinished and random.random() < 0.8 else random.choice(KEYS)
        version = expected.beside.get(key) or expected.versions.get(key)
        client = version.client if version is not None and random.random() < 0.9 else random.choice(CLIENTS)
        code, _ = self.index.put_revoke(self.now, client, T, key)
        if version is None:
            assert code == Code.NOT_FOUND
        elif version.client != client:
            assert code == Code.ILLEGAL_CLIENT
        elif version.complete:
            assert code == Code.INVALID_WRITE
        else:
            assert code == Code.OK
            if expected.beside.pop(key, None) is None:
                del expected.versions[key]
            self.note("put_revoke")

    # --- reads ---

    def get(self) -> None:
        key = self.random.choice(KEYS)
        version = self.expected.versions.get(key)
        entry = self.index.get(self.now, T, key)
        if version is None or not version.complete:
            assert entry is None
            code, _ = self.index.miss(T, key)
            assert code == (Code.NOT_FOUND if version is None else Code.NOT_READY)
            self.note("miss")
            return
        assert entry is not None
        assert (entry.size, entry.put_seq) == (version.size, version.put_seq)
        self._leased(key, version)
        self.note("hit")

    def _leased(self, key: bytes, version: Version) -> None:
        version.lease_end = max(version.lease_end, self.now + self.settings.lease_ttl_ms)
        entry = self.index.lookup(T, key)
        assert entry is not None
        assert self.index.lease_end_of(entry) - self.index.offset >= version.lease_end
        self.ledger.leased(entry, self.now + self.settings.lease_ttl_ms)

    def exist_many(self) -> None:
        keys = self.random.sample(KEYS, 6)
        found, _ = self.index.exist_many(self.now, T, keys, True, False)
        for key, hit in zip(keys, found, strict=True):
            version = self.expected.versions.get(key)
            assert hit == (version is not None and version.complete)
            if hit and version is not None:
                self._leased(key, version)

    # --- removes ---

    def remove(self) -> None:
        key, force = self.random.choice(KEYS), self.random.random() < 0.3
        version = self.expected.versions.get(key)
        leased = version is not None and self.lease_of(version) > self.now
        code, after = self.index.remove(self.now, T, key, force)
        if version is None:
            assert code == Code.NOT_FOUND
            assert after == self.index.last_n
            return
        if code == Code.HAS_LEASE:
            assert leased
            assert not force
        elif code == Code.NOT_READY:
            assert not version.complete or key in self.expected.beside or key in self.expected.copying
        else:
            assert code == Code.OK
            assert version.complete
            assert force or not leased
            del self.expected.versions[key]
            self.note("remove forced" if leased else "remove")

    def remove_range(self) -> None:
        force = self.random.random() < 0.3
        digit = self.random.choice((b"1", b"2", b"33", b""))
        gone = [
            key
            for key, version in self.expected.versions.items()
            if key.endswith(digit)
            and version.complete
            and key not in self.expected.beside
            and key not in self.expected.copying
            and (force or self.lease_of(version) <= self.now)
        ]
        if digit:
            code, count, _ = self.index.remove_by_regex(self.now, T, digit + b"$", force)
        else:
            code, count, _ = self.index.remove_all(self.now, T, force)
        assert code == Code.OK
        assert count == len(gone)
        for key in gone:
            del self.expected.versions[key]
        self.note("remove range")

    def replica_clear(self) -> None:
        keys, client = self.random.sample(KEYS, 5), self.random.choice(CLIENTS)
        name = self.random.choice(("", "seg1", "seg2"))
        code, cleared, _ = self.index.replica_clear(self.now, client, T, keys, name)
        assert code == Code.OK
        for key in cleared:
            version = self.expected.versions[key]
            assert version.complete
            assert version.client == client
            assert self.lease_of(version) <= self.now
            if not self._replicas(key):
                del self.expected.versions[key]
            self.note("clear")

    # --- copies ---

    def copy(self) -> None:
        random = self.random
        key, client, move = random.choice(KEYS), random.choice(CLIENTS), random.random() < 0.5
        version = self.expected.versions.get(key)
        target = random.choice(("seg1", "seg2", "seg3"))
        if move:
            code, found, n = self.index.move_start(self.now, client, T, key, "", target)
        else:
            code, found, n = self.index.copy_start(self.now, client, T, key, "", (target,))  # type: ignore[assignment]
        if code == Code.SEGMENT_NOT_FOUND:
            assert not self.index.segments_by_name(target)
        elif version is None:
            assert code == Code.NOT_FOUND
        elif not version.complete:
            assert code == Code.NOT_READY
        if code == Code.OK and version is not None:
            assert found is not None
            job = self.index.copies[(T, key)]
            gives_up = self.now + self.settings.put_release_ms
            claims = self.ledger.handed_out(self.now, job.replicas, version.size, f"copy of {key!r} ({n})", gives_up)
            self.expected.copying[key] = (client, claims)
            self.note("move" if move else "copy")

    def end_copy(self) -> None:
        expected = self.expected
        if not expected.copying:
            return
        key = self.random.choice(list(expected.copying))
        client, claims = expected.copying.pop(key)
        if self.random.random() < 0.3:
            assert self.index.copy_revoke(self.now, client, T, key)[0] == Code.OK
        else:
            assert self.index.copy_end(self.now, client, T, key)[0] == Code.OK
            for claim in claims:
                claim.until = 0
            self.note("copy_end")

    # --- time and segments ---

    def tick(self) -> None:
        self.now += self.random.choice((1, 10, 50, 200, 700))
        self.index.ping(self.now, STORAGE)

    def leap(self) -> None:
        """Longer than the storage client's term: taken for dead, though it is not."""
        self.now += self.settings.client_ttl_ms + self.random.choice((1, 200, 5_000))
        self.false_death = True
        self.index.work(self.now, 8)
        assert self.index.ping(self.now, STORAGE) == ClientStatus.NEED_REMOUNT
        self.reconcile()
        self.now += self.random.choice((0, 10, 300))
        assert self.index.remount(self.now, STORAGE, [self.specs[n] for n in self.mounted])[0] == Code.OK
        self.note("false death")

    def _mount(self, number: int) -> None:
        assert self.index.mount(self.now, STORAGE, self.specs[number])[0] == Code.OK
        self.mounted.add(number)

    def segments(self) -> None:
        number = self.random.choice((2, 3))
        if number not in self.mounted:
            self._mount(number)
            return
        assert self.index.unmount(self.now, STORAGE, self.specs[number].id)[0] == Code.OK
        self.mounted.discard(number)
        self.ledger.owner_took_back(self.specs[number].endpoint)
        self.false_death = True
        self.note("unmount")

    def bad_input(self) -> None:
        before = (self.index.last_n, self.index.digest())
        wrong: list[Callable[[], int]] = [
            lambda: self.index.put_start(self.now, CLIENTS[0], T, b"", 10, PutConfig())[0],
            lambda: self.index.put_start(self.now, CLIENTS[0], T, b"k" * 70_000, 10, PutConfig())[0],
            lambda: self.index.put_start(self.now, CLIENTS[0], T, b"new", 0, PutConfig())[0],
            lambda: self.index.put_start(self.now, CLIENTS[0], T, b"new", 1 << 30, PutConfig())[0],
            lambda: self.index.put_start(self.now, CLIENTS[0], T, b"new", 1, PutConfig(replicas=0))[0],
            lambda: self.index.put_start(self.now, CLIENTS[0], T, b"new", 1, PutConfig(soft_pin_ttl_ms=-1))[0],
            lambda: self.index.remove_by_regex(self.now, T, b"[", False)[0],
            lambda: self.index.mount(self.now, STORAGE, spec(9, size=0))[0],
            lambda: self.index.mount(self.now, STORAGE, spec(9, base=0x1000_0000, endpoint="host1:1"))[0],
            lambda: self.index.unmount(self.now, b"somebody-else---", self.specs[1].id)[0],
        ]
        assert self.random.choice(wrong)() < 0
        assert before == (self.index.last_n, self.index.digest())
