"""Helpers for the tests of the index: a primary with segments, and a pair of primary and standby."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from zlib import crc32

from leasehold.index import Code, Index, IndexSettings, Object, PutConfig, SegmentSpec
from leasehold.index.records import Record
from leasehold.index.snapshot_format import Slice
from leasehold.index.tables import TABLES

T = b"default"
STORAGE = b"storage-client-1"
WRITER = b"writer-client--1"
OTHER = b"another-client-1"
KIB = 1024


def settings(**changes: object) -> IndexSettings:
    return IndexSettings(**changes)  # type: ignore[arg-type]  # each test names fields of the right type


def spec(
    number: int = 1, *, size: int = 64 * KIB, base: int | None = None, endpoint: str = "", protocol: str = "tcp"
) -> SegmentSpec:
    where = 0x1000_0000 * number if base is None else base
    return SegmentSpec(
        number.to_bytes(16, "big"),
        f"seg{number}",
        where,
        size,
        endpoint or f"host{number}:1",
        protocol,
        f"host{number}",
    )


def primary(segment_sizes: tuple[int, ...] = (64 * KIB,), seed: int = 0, **changes: object) -> Index:
    """A primary of epoch 1 at leader time 0, with one storage client and its segments; all of it durable."""
    index = Index(settings(**changes), Random(seed).randrange)
    index.begin(0, 1)
    for number, size in enumerate(segment_sizes, start=1):
        assert index.mounts.mount(0, STORAGE, spec(number, size=size)).code == Code.OK
    index.log.durable(index.log.last_n)
    return index


def put(
    index: Index, now_ms: int, key: bytes, size: int = 4 * KIB, config: PutConfig | None = None, client: bytes = WRITER
) -> Object:
    """Start and end a put that must succeed."""
    reply = index.puts.start(now_ms, client, T, key, size, config or PutConfig())
    code, entry = reply.code, reply.value
    assert code == Code.OK, (key, code)
    assert entry is not None
    assert index.puts.end(now_ms, client, T, key).code == Code.OK
    return entry


def follow(standby: Index, leader: Index) -> None:
    """Apply everything that the leader has decided, by its records."""
    for n, record in leader.log.take_outbox():
        standby.apply(n, record)
    leader.log.durable(leader.log.last_n)


def standby(**changes: object) -> Index:
    return Index(settings(**changes), Random(99).randrange)


def flush(leader: Index, follower: Index, now_ms: int) -> None:
    """One complete unlogged batch."""
    renewals, complete = leader.take_renewals(1_000_000)
    assert complete
    for renewal in renewals:
        assert follower.apply_renewal(*renewal)
    for hint in leader.take_hints(1_000_000):
        follower.apply_hint(*hint)
    follower.observe(now_ms)
    follower.expire_until(now_ms)


def pair(eviction_policy: str = "pressure") -> tuple[Index, Index]:
    """A primary, and a standby that has applied what it began with."""
    leader, follower = primary(eviction_policy=eviction_policy), standby(eviction_policy=eviction_policy)
    follow(follower, leader)
    return leader, follower


def all_slices(index: Index) -> list[Slice]:
    """A whole snapshot but for its last slice, as of one moment."""
    slices: list[Slice] = []
    while (taken := sum(one.table_count for one in slices)) < TABLES:
        slices.append(index.export.tables(taken))
    return slices


def places(index: Index, key: bytes) -> list[tuple[int, int]]:
    """Where its replicas are: (incarnation of the segment, offset)."""
    entry = index.catalog.lookup(T, key)
    assert entry is not None
    return [(replica.segment.incarnation, replica.offset) for replica in entry.replicas]


def fuzzy(leader: Index, early: bytes, meanwhile: Callable[[], None]) -> Index:
    """A node built from a snapshot: the slice of the key `early`, then something happens, then all the others."""
    log: list[tuple[int, Record]] = leader.log.take_outbox()
    first = crc32(early) % TABLES
    slices = [leader.export.tables(first, 1)]
    meanwhile()
    log += leader.log.take_outbox()
    slices += [leader.export.tables(number, 1) for number in range(TABLES) if number != first]
    built = standby()
    built.load(leader.export.keyless(), slices)
    for n, record in log:
        if n > built.log.last_n:
            built.apply(n, record)
    built.check()
    return built
