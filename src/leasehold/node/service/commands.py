"""The commands that a client can give, with typed replies: `serving.execute(command, ...)` runs one on the index.

A reply states its kind (an acknowledgement, space, a view) and the record that the answer waits for. The hot commands
are methods of `Serving`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from leasehold.base.codes import Code
from leasehold.ha.serving import End, Start
from leasehold.index.index import Index
from leasehold.index.model import Object, PutConfig, Segment, Task
from leasehold.index.removes import RangeRemoval
from leasehold.index.replies import SpaceHandedOut, View, acknowledges, hands_out, shows

put_revoke: Final = acknowledges(Index.put_revoke)
upsert_revoke: Final = acknowledges(Index.upsert_revoke)
mount: Final = acknowledges(Index.mount)
remount: Final = acknowledges(Index.remount)
unmount: Final = acknowledges(Index.unmount)
drain: Final = acknowledges(Index.drain)
copy_start: Final = hands_out(Index.copy_start)
copy_end: Final = acknowledges(Index.copy_end)
copy_revoke: Final = acknowledges(Index.copy_revoke)
move_start: Final = hands_out(Index.move_start)
move_end: Final = acknowledges(Index.move_end)
move_revoke: Final = acknowledges(Index.move_revoke)
create_copy_task: Final = shows(Index.create_copy_task)
create_move_task: Final = shows(Index.create_move_task)
finish_task: Final = acknowledges(Index.finish_task)
replica_clear: Final = shows(Index.replica_clear)


# --- reads ---


def exist_many(
    index: Index, now_ms: int, tenant: bytes, keys: Sequence[bytes], hit: bytes, miss: bytes
) -> View[list[bytes]]:
    """For each key `hit` or `miss`."""
    return View(*index.exist_many(now_ms, tenant, keys, hit, miss))


def get_many(index: Index, now_ms: int, tenant: bytes, keys: Sequence[bytes]) -> View[list[Object | None]]:
    """`get` for each key, with one record for all."""
    return View(*index.get_many(now_ms, tenant, keys))


# --- puts ---


def start_many(
    index: Index, now_ms: int, start: Start, client: bytes, tenant: bytes, items: Iterable[tuple[bytes, int, PutConfig]]
) -> SpaceHandedOut[list[tuple[Code, Object | None]]]:
    """Start each (key, size, config); one answer hands out the space of all."""
    results: list[tuple[Code, Object | None]] = []
    append, last = results.append, 0
    for key, size, config in items:
        code, made, after = start(index, now_ms, client, tenant, key, size, config)
        if after > last:
            last = after
        append((code, made))
    return SpaceHandedOut(Code.OK, results, last)


def end_many(
    index: Index,
    now_ms: int,
    end: End,
    client: bytes,
    tenant: bytes,
    kind: int,
    named: Iterable[tuple[bytes, int | None]],
) -> View[list[Code]]:
    """End each (key, checksum); a code for each."""
    codes: list[Code] = []
    append, last = codes.append, 0
    for key, checksum in named:
        code, after = end(index, now_ms, client, tenant, key, kind, checksum)
        if after > last:
            last = after
        append(code)
    return View(codes, last)


# --- removes ---


class RemoveMany:
    """A `BatchRemove` under way. The index bounds a caller's removes of absent keys: beyond, it answers TRY_AGAIN."""

    def __init__(self, keys: Sequence[bytes], force: bool, tenant: bytes, source: bytes) -> None:
        self._keys, self._force, self._tenant, self._source = keys, force, tenant, source
        self._last_n = 0
        self.codes: list[Code] = []

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, self._keys))

    def step(self, index: Index, now_ms: int) -> View[bool]:
        """True: every key has its code. False: go on when the record of this reply is durable."""
        remove, tenant, force, source, codes = index.remove, self._tenant, self._force, self._source, self.codes
        for key in self._keys[len(codes) :]:
            code, after = remove(now_ms, tenant, key, force, source)
            if code == Code.TRY_AGAIN:
                return View(False, after)
            if after > self._last_n:
                self._last_n = after
            codes.append(code)
        return View(True, self._last_n)


def range_removal_step(index: Index, now_ms: int, removal: RangeRemoval) -> View[bool]:
    """One step of `RemoveAll` or `RemoveByRegex`. True when it was the last one."""
    return View(removal.step(now_ms), removal.after)


# --- clients, segments, tasks ---


def ping(index: Index, now_ms: int, client: bytes) -> View[int]:
    """The client's status. It shows no record."""
    return View(index.ping(now_ms, client), 0)


def find_many(index: Index, now_ms: int, tenant: bytes, keys: Sequence[bytes]) -> View[list[Object | None]]:
    """The objects of these names, readable or not, without a lease."""
    return View([index.lookup(tenant, key) for key in keys], index.last_n)


def segment_by_name(index: Index, now_ms: int, name: str) -> View[Segment | None]:
    """The first segment of this name."""
    found = index.segments_by_name(name)
    return _segment(index, found[0] if found else None)


def segment_by_id(index: Index, now_ms: int, segment: bytes) -> View[Segment | None]:
    return _segment(index, index.segment_by_id(segment))


def _segment(index: Index, segment: Segment | None) -> View[Segment | None]:
    """A segment that is mounted shows only its mount. One that is absent or draining shows that it is."""
    return View(segment, index.last_n if segment is None or segment.drain_end else segment.incarnation)


def client_endpoints(index: Index, now_ms: int, clients: Sequence[bytes]) -> View[dict[bytes, list[str]]]:
    """The endpoints where these clients lend memory."""
    return View({client: index.client_endpoints(client) for client in clients}, index.last_n)


def fetch_tasks(index: Index, now_ms: int, client: bytes, limit: int) -> View[list[Task]]:
    """Tasks for this client that were not fetched yet."""
    return View(*index.fetch_tasks(now_ms, client, limit))


def query_task(index: Index, now_ms: int, task: bytes) -> View[tuple[Code, Task | None]]:
    code, found, after = index.query_task(task)
    return View((code, found), after)
