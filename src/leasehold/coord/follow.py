"""Follow a range: its current content, then every change. After a compaction the range is listed again.

async for view in follow(coord, b"/app/", prefix_end(b"/app/")):
    if isinstance(view, Snapshot):
        state = {kv.key: kv for kv in view.kvs}
    else:
        for event in view.events: ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from leasehold.coord.api import Coord
from leasehold.coord.errors import SlowConsumer
from leasehold.mvcc.errors import Compacted
from leasehold.mvcc.model import FROM_KEY, Header, KeyValue, RangeResult, WatchBatch

PAGE_KEYS = 1_000


class Snapshot(Struct, frozen=True):
    """Everything in the range at `header.revision`. It replaces all earlier state."""

    header: Header
    kvs: tuple[KeyValue, ...]


async def follow(
    coord: Coord,
    key: bytes,
    range_end: bytes = b"",
    *,
    prev_kv: bool = False,
    page_keys: int = PAGE_KEYS,
) -> AsyncIterator[Snapshot | WatchBatch]:
    """A `Snapshot`, then every `WatchBatch`. After a compaction, or if the reader is too slow, a `Snapshot` again."""
    while True:
        try:
            snapshot = await list_range(coord, key, range_end, page_keys=page_keys)
            yield snapshot
            start = snapshot.header.revision + 1
            async with coord.watch(key, range_end, start_revision=start, prev_kv=prev_kv) as stream:
                async for batch in stream:
                    yield batch
        except (Compacted, SlowConsumer):
            continue


async def list_range(coord: Coord, key: bytes, range_end: bytes = b"", *, page_keys: int = PAGE_KEYS) -> Snapshot:
    """The whole range at one revision, read in pages. Raises `Compacted` if that revision is compacted meanwhile."""
    found: list[KeyValue] = []
    page: RangeResult = await coord.get(key, range_end, limit=page_keys)
    header = page.header
    found += page.kvs
    while page.more:
        after = found[-1].key + b"\0"
        page = await coord.get(after, range_end or FROM_KEY, limit=page_keys, revision=header.revision)
        found += page.kvs
    return Snapshot(header, tuple(found))
