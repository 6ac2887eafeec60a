"""The share of new bytes that a newly mounted segment receives, second by second. For tests and the picture in docs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from leasehold.index import Code, Index, IndexSettings, PutConfig, SegmentSpec

_KIB = 1024
_SEGMENT_BYTES = 64 << 20
_CLIENT = b"storage-client-1"
_JOINS_MS = 3_600_000


def newcomer_share(
    allocation: str, *, seed: int = 1, sizes: Sequence[int] = (4 * _KIB,), puts_per_s: int = 50
) -> list[float]:
    """Ten segments are 90 % full, an empty one joins, puts arrive. Its cumulative share after each of 60 seconds."""
    chance = Random(seed)
    index = Index(IndexSettings(allocation=allocation, client_ttl_ms=_JOINS_MS), chance.randrange)
    index.begin(0, 1)
    for number in range(10):
        _mount(index, 0, number)
    filled = 0
    while index.space.used_bytes < 0.9 * index.space.total_bytes:
        _put(index, 1, b"old-%d" % filled, 64 * _KIB)
        filled += 1
    index.owners.all_seen(_JOINS_MS)
    _mount(index, _JOINS_MS, 10)
    newcomer = index.space.segments.by_name.get("segment-10")[0]
    shares, given, placed = [], 0, 0
    for second in range(60):
        for number in range(puts_per_s):
            size, now_ms = chance.choice(sizes), _JOINS_MS + 1_000 * second + number * 1_000 // puts_per_s
            before = newcomer.allocator.used_bytes
            _put(index, now_ms, b"new-%d-%d" % (second, number), size)
            given += size if newcomer.allocator.used_bytes > before else 0
            placed += size
        shares.append(given / placed)
    return shares


def _mount(index: Index, now_ms: int, number: int) -> None:
    name = f"segment-{number}"
    spec = SegmentSpec(bytes([number]) * 16, name, (number + 1) << 40, _SEGMENT_BYTES, f"{name}:1", "tcp", name)
    if index.mounts.mount(now_ms, _CLIENT, spec).code != Code.OK:
        raise AssertionError(f"segment {name!r} was not mounted")


def _put(index: Index, now_ms: int, key: bytes, size: int) -> None:
    if index.puts.start(now_ms, _CLIENT, b"default", key, size, PutConfig()).code != Code.OK:
        raise AssertionError(f"key {key!r} was not placed")
    index.puts.end(now_ms, _CLIENT, b"default", key)
    index.log.take_outbox()
    index.log.durable(index.log.last_n)
