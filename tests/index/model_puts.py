"""Puts and upserts against the naive model."""

from __future__ import annotations

from tests.index.kit import T
from tests.index.model_core import CLIENTS, KEYS, Core, Version

from leasehold.index import Code, PutConfig


class Puts(Core):
    """Random starts, ends and revocations."""

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
        reply = self.index.puts.start(self.now, client, T, key, size, config)
        code, entry, after = reply.code, reply.value, reply.after
        if old is not None and self.index.catalog.lookup(T, key) is not None and code == Code.EXISTS:
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
            gone = self.index.catalog.lookup(T, key) is entry
            assert gone
            if not old.complete:
                assert self.now - old.started >= self.settings.put_discard_ms
            del self.expected.versions[key]
        self._started(key, client, size, config, soft_ttl, entry.put_seq)
        self.note("put_start")

    def _started(
        self, key: bytes, client: bytes, size: int, config: PutConfig, soft_ttl: int | None, put_seq: int
    ) -> Version:
        entry = self.index.catalog.unfinished[put_seq]
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
        reply = self.index.puts.start_upsert(self.now, client, T, key, size, config)
        code, entry = reply.code, reply.value
        if code in (Code.NO_SPACE, Code.NOT_READY):
            self.note(f"upsert {code.name}")
            if code == Code.NO_SPACE and old is not None and self.index.catalog.lookup(T, key) is None:
                assert not leased
            return
        assert code == Code.OK
        assert entry is not None
        new_places = {(r.segment.incarnation, r.offset) for r in entry.replicas}
        beside = self.index.catalog.pending.get((T, key)) is entry
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

    def _draft_to_end(self, *, its_key: float, its_client: float) -> tuple[bytes, Version | None, bytes]:
        """The key of an unfinished put, its expected version, and a client: mostly the right ones, by these chances."""
        random, expected = self.random, self.expected
        unfinished = [k for k, v in expected.versions.items() if not v.complete] + list(expected.beside)
        key = random.choice(unfinished) if unfinished and random.random() < its_key else random.choice(KEYS)
        version = expected.beside.get(key) or expected.versions.get(key)
        client = version.client if version is not None and random.random() < its_client else random.choice(CLIENTS)
        return key, version, client

    def put_end(self) -> None:
        expected = self.expected
        key, version, client = self._draft_to_end(its_key=0.9, its_client=0.95)
        code = self.index.puts.end(self.now, client, T, key).code
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
                claim.until = 0  # the writer has reported that it is done
            version.complete = True
            version.lease_end = self.now
            if version.soft_ttl is not None:
                version.soft_end = self.now + version.soft_ttl
            else:
                version.soft_end = self._soft_end_in_index(key)
            self.note("put_end")

    def _soft_end_in_index(self, key: bytes) -> int:
        entry = self.index.catalog.lookup(T, key)
        return 0 if entry is None or not entry.soft_pin_end else entry.soft_pin_end - self.index.clock.offset

    def put_revoke(self) -> None:
        expected = self.expected
        key, version, client = self._draft_to_end(its_key=0.8, its_client=0.9)
        code = self.index.puts.revoke(self.now, client, T, key).code
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
