"""A naive model of the index: one dict, no allocator, no wheel, no records. It predicts every answer.

It judges what it cannot predict: which object was evicted (it must have been allowed), and where an object was placed
(the ledger says whether those bytes were free to give).
"""

from __future__ import annotations

from collections.abc import Callable

from tests.index.kit import STORAGE, T, spec
from tests.index.model_core import CLIENTS, KEYS, Version
from tests.index.model_puts import Puts

from leasehold.base.codes import ClientStatus
from leasehold.index import Code, PutConfig


class Driver(Puts):
    """Random commands against an index and its model."""

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

    # --- reads ---

    def get(self) -> None:
        key = self.random.choice(KEYS)
        version = self.expected.versions.get(key)
        entry = self.index.reads.get(self.now, T, key)
        if version is None or not version.complete:
            assert entry is None
            code = self.index.reads.miss(T, key).value
            assert code == (Code.NOT_FOUND if version is None else Code.NOT_READY)
            self.note("miss")
            return
        assert entry is not None
        assert (entry.size, entry.put_seq) == (version.size, version.put_seq)
        self._leased(key, version)
        self.note("hit")

    def _leased(self, key: bytes, version: Version) -> None:
        version.lease_end = max(version.lease_end, self.now + self.settings.lease_ttl_ms)
        entry = self.index.catalog.lookup(T, key)
        assert entry is not None
        assert self.index.leases.end_of(entry) - self.index.clock.offset >= version.lease_end
        self.ledger.leased(entry, self.now + self.settings.lease_ttl_ms)

    def exist_many(self) -> None:
        keys = self.random.sample(KEYS, 6)
        found = self.index.reads.exist_many(self.now, T, keys, True, False).value
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
        reply = self.index.removes.remove(self.now, T, key, force)
        code, after = reply.code, reply.after
        if version is None:
            assert code == Code.NOT_FOUND
            assert after == self.index.log.last_n
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
            reply = self.index.removes.remove_by_regex(self.now, T, digit + b"$", force)
            code, count = reply.code, reply.value
        else:
            reply = self.index.removes.remove_all(self.now, T, force)
            code, count = reply.code, reply.value
        assert code == Code.OK
        assert count == len(gone)
        for key in gone:
            del self.expected.versions[key]
        self.note("remove range")

    def replica_clear(self) -> None:
        keys, client = self.random.sample(KEYS, 5), self.random.choice(CLIENTS)
        name = self.random.choice(("", "seg1", "seg2"))
        reply = self.index.removes.clear_replicas(self.now, client, T, keys, name)
        code, cleared = reply.code, reply.value
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
            moving = self.index.copies.move_start(self.now, client, T, key, "", target)
            code, given, n = moving.code, moving.value is not None, moving.after
        else:
            copying = self.index.copies.copy_start(self.now, client, T, key, "", (target,))
            code, given, n = copying.code, copying.value is not None, copying.after
        if code == Code.SEGMENT_NOT_FOUND:
            assert not self.index.space.segments.by_name.get(target)
        elif version is None:
            assert code == Code.NOT_FOUND
        elif not version.complete:
            assert code == Code.NOT_READY
        if code == Code.OK and version is not None:
            assert given
            job = self.index.catalog.copies[(T, key)]
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
        move = bool(self.index.catalog.copies[(T, key)].moves)
        if self.random.random() < 0.3:
            revoke = self.index.copies.move_revoke if move else self.index.copies.copy_revoke
            assert revoke(self.now, client, T, key).code == Code.OK
        else:
            end, other = self.index.copies.copy_end, self.index.copies.move_end
            end, other = (other, end) if move else (end, other)
            assert other(self.now, client, T, key).code == Code.BAD_PARAMS
            assert end(self.now, client, T, key).code == Code.OK
            for claim in claims:
                claim.until = 0
            self.note("copy_end")

    # --- time and segments ---

    def tick(self) -> None:
        self.now += self.random.choice((1, 10, 50, 200, 700))
        self.index.owners.ping(self.now, STORAGE)

    def leap(self) -> None:
        """Longer than the storage client's term: taken for dead, though it is not."""
        end = self.now + self.settings.client_ttl_ms + self.random.choice((1, 200, 5_000))
        self.false_death = True
        self.index.work(self.now, 8)
        while end - self.now > 1_000:  # the master runs: a stall of its own would not count against the client
            self.now += 900
            self.index.work(self.now, 8)
        self.now = end
        self.index.work(self.now, 8)
        assert self.index.owners.ping(self.now, STORAGE) == ClientStatus.NEED_REMOUNT
        self.reconcile()
        self.now += self.random.choice((0, 10, 300))
        assert self.index.mounts.remount(self.now, STORAGE, [self.specs[n] for n in self.mounted]).code == Code.OK
        self.note("false death")

    def segments(self) -> None:
        number = self.random.choice((2, 3))
        if number not in self.mounted:
            self._mount(number)
            return
        assert self.index.mounts.unmount(self.now, STORAGE, self.specs[number].id).code == Code.OK
        self.mounted.discard(number)
        self.ledger.owner_took_back(self.specs[number].endpoint)
        self.false_death = True
        self.note("unmount")

    def bad_input(self) -> None:
        before = (self.index.log.last_n, self.index.digest())
        wrong: list[Callable[[], int]] = [
            lambda: self.index.puts.start(self.now, CLIENTS[0], T, b"", 10, PutConfig()).code,
            lambda: self.index.puts.start(self.now, CLIENTS[0], T, b"k" * 70_000, 10, PutConfig()).code,
            lambda: self.index.puts.start(self.now, CLIENTS[0], T, b"new", 0, PutConfig()).code,
            lambda: self.index.puts.start(self.now, CLIENTS[0], T, b"new", 1 << 30, PutConfig()).code,
            lambda: self.index.puts.start(self.now, CLIENTS[0], T, b"new", 1, PutConfig(replicas=0)).code,
            lambda: self.index.puts.start(self.now, CLIENTS[0], T, b"new", 1, PutConfig(soft_pin_ttl_ms=-1)).code,
            lambda: self.index.removes.remove_by_regex(self.now, T, b"[", False).code,
            lambda: self.index.mounts.mount(self.now, STORAGE, spec(9, size=0)).code,
            lambda: self.index.mounts.mount(self.now, STORAGE, spec(9, base=0x1000_0000, endpoint="host1:1")).code,
            lambda: self.index.mounts.unmount(self.now, b"another-client--", self.specs[1].id).code,
        ]
        assert self.random.choice(wrong)() < 0
        assert before == (self.index.log.last_n, self.index.digest())
