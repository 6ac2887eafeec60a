"""A fuzzy snapshot as a file: slices of the key space, exported one after the other while the state keeps changing.

A file is a sequence of frames (length, CRC-32, zstd of msgpack): a head, the slices, the quarantine if it is large,
and the keyless slice last. A slice is a run of tables, as many as make a short step: a small index has one or two
slices, an index with a million objects has thousands. Each slice carries its own record number. Replay starts from the
lowest of them, and a record changes a key only if it is newer than that key's slice. A file without its last frame is
not valid.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from leasehold.base.errors import PeerError
from leasehold.base.limits import snapshot_step_extents
from leasehold.index.features import LEVEL_NEWEST
from leasehold.index.index import Index
from leasehold.index.snapshot_format import Keyless, QuarantineSlice, Slice
from leasehold.index.space.walk import QuarantineWalk
from leasehold.index.tables import TABLES
from leasehold.journal.chain import Position
from leasehold.journal.compression import DoesNotInflate, deflate, inflate

# Version 1 is feature level 0. Version 2 states its level, and has sections that a reader of version 1 would ignore.
VERSION_NEWEST: Final = 2
T = TypeVar("T")
_FRAME: Final = struct.Struct("<II")
_FRAME_BYTES_MAX: Final = 256 << 20  # of the content of one frame, which has a few hundred objects
_encoder = msgspec.msgpack.Encoder()


class UnreadableSnapshot(PeerError):
    """A snapshot's bytes are damaged or incomplete. The file stays; use another snapshot, or the journal."""


class ForeignSnapshot(UnreadableSnapshot):
    """The snapshot belongs to another cluster, named `cluster`."""

    def __init__(self, cluster: str, ours: str) -> None:
        super().__init__(f"the snapshot belongs to cluster {cluster!r}; this is cluster {ours!r}")
        self.cluster = cluster


class Head(Struct, frozen=True, array_like=True):
    version: int
    cluster: str
    epoch: int
    n: int
    level: int = 0


class Loaded(Struct, frozen=True):
    """A whole snapshot, decoded. Replay begins after `low`; every record up to `end` was durable."""

    head: Head
    slices: tuple[Slice, ...]
    quarantined: tuple[QuarantineSlice, ...]
    keyless: Keyless

    @property
    def low(self) -> Position:
        return min((Position(one.epoch, one.n) for one in self.slices), key=lambda position: position.n)

    @property
    def end(self) -> Position:
        return Position(self.keyless.epoch, self.keyless.n)


class SnapshotTaker:
    """Takes one snapshot of an index that keeps changing.

    Call `slice` until `sliced`, then `quarantined` until it returns nothing, then `keyless`.
    """

    __slots__ = ("_cluster", "_index", "_level", "_next", "_walk", "end", "low_n", "started")

    def __init__(self, index: Index, cluster: str) -> None:
        self._index = index
        self._cluster = cluster
        self._level = index.features.level
        self._next = 0  # table
        self._walk: QuarantineWalk | None = None
        self.started = Position(index.log.epoch, index.log.last_n)
        self.low_n = index.log.last_n  # replay begins after this record
        self.end = Position()  # known after the last step

    @property
    def untouched(self) -> bool:
        return self._next == 0

    @property
    def outdated(self) -> bool:
        """Whether this snapshot can no longer be completed: another epoch began, or the feature level changed.

        Its slices would mix the leader times of two epochs; its head would state another level than its sections have.
        """
        log, features = self._index.log, self._index.features
        return self.started.epoch != log.epoch or self._level != features.level

    @property
    def sliced(self) -> bool:
        """All slices are taken; the quarantine and the keyless state are still missing."""
        return self._next == TABLES

    def slice(self, tables_max: int = TABLES) -> bytes:
        """The frame of the next slice, one short step; the first call also returns the frame of the head."""
        head = b""
        if self._next == 0:
            version = 1 if self._level == 0 else VERSION_NEWEST
            head = _pack(Head(version, self._cluster, self.started.epoch, self.started.n, self._level))
        part = self._index.export.tables(self._next, tables_max)
        self._next += part.table_count
        return head + _pack(part)

    def quarantined(self, extents_max: int = snapshot_step_extents) -> bytes:
        """The next frame of the quarantine, one short step.

        Returns nothing once the remaining extents fit into the last frame, also if they fit from the start.
        """
        if self._walk is None:
            if len(self._index.space.quarantine) <= extents_max:
                return b""
            self._walk = QuarantineWalk(self._index.space)
        if self._walk.is_short(extents_max):
            return b""
        return _pack(self._index.export.quarantine(self._walk, extents_max))

    def keyless(self) -> bytes:
        """The last frame. Law: write it only once `end` is durable, or the file could hold records that were lost."""
        keyless = self._index.export.keyless(self._walk)
        self.end = Position(keyless.epoch, keyless.n)
        return _pack(keyless)

    def give_up(self) -> None:
        """Stop before the snapshot is complete."""
        if self._walk is not None:
            self._walk.end()


def load_snapshot(raw: bytes, cluster: str, step: Callable[[], None] = lambda: None) -> Loaded:
    """Decode a whole file, calling `step` between its parts; `UnreadableSnapshot` names the fault."""
    frames = list(_frames(raw))
    try:
        head = msgspec.msgpack.decode(frames[0] if frames else b"", type=Head)
        if head.version > VERSION_NEWEST or head.level > LEVEL_NEWEST:
            raise UnreadableSnapshot(
                f"the snapshot has version {head.version} and feature level {head.level}; this release reads up to "
                f"version {VERSION_NEWEST} and level {LEVEL_NEWEST}: upgrade this node"
            )
        if head.cluster != cluster:
            raise ForeignSnapshot(head.cluster, cluster)
        parts = [msgspec.msgpack.decode(frame, type=Slice | QuarantineSlice) for frame in stepping(frames[1:-1], step)]
        slices = tuple(part for part in parts if isinstance(part, Slice))
        quarantined = tuple(part for part in parts if isinstance(part, QuarantineSlice))
        tables = sum(one.table_count for one in slices)
        if tables != TABLES:
            raise UnreadableSnapshot(f"the snapshot is incomplete: it has {tables} of {TABLES} tables")
        keyless = msgspec.msgpack.decode(frames[-1], type=Keyless)
    except msgspec.MsgspecError as error:
        raise UnreadableSnapshot(f"the snapshot does not decode: {error}") from None
    return Loaded(head, slices, quarantined, keyless)


def stepping(parts: Iterable[T], step: Callable[[], None]) -> Iterator[T]:
    """The same parts, with `step` called before each, so that the guardian sees progress during a long load."""
    for part in parts:
        step()
        yield part


def _pack(value: Struct) -> bytes:
    body = deflate(_encoder.encode(value))
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _frames(raw: bytes) -> Iterator[bytes]:
    at, view = 0, memoryview(raw)
    while at < len(raw):
        if at + _FRAME.size > len(raw):
            raise UnreadableSnapshot("the snapshot ends in the middle of a frame")
        length, crc = _FRAME.unpack_from(raw, at)
        body = view[at + _FRAME.size : at + _FRAME.size + length]
        at += _FRAME.size + length
        if len(body) != length or zlib.crc32(body) != crc:
            raise UnreadableSnapshot("a frame of the snapshot is damaged or cut off")
        try:
            yield inflate(body, _FRAME_BYTES_MAX)
        except DoesNotInflate as error:
            raise UnreadableSnapshot(f"a frame of the snapshot does not decompress: {error}") from None
