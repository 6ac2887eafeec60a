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
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import PeerError
from leasehold.base.limits import snapshot_step_extents
from leasehold.index.features import LEVEL_NEWEST
from leasehold.index.index import Index
from leasehold.index.snapshot_format import DiskSlice, Keyless, QuarantineSlice, Slice
from leasehold.index.space.walk import QuarantineWalk
from leasehold.index.tables import TABLES
from leasehold.journal.chain import Position
from leasehold.journal.compression import DoesNotInflate, deflate, inflate

# Version 1 is feature level 0. Version 2 states its level, and has sections that a reader of version 1 would ignore.
VERSION_NEWEST: Final = 2
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
    def parts(self) -> tuple[Slice | QuarantineSlice, ...]:
        return (*self.slices, *self.quarantined)

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


class SnapshotReader:
    """Reads a file part by part. The last part comes first: it has the segments, which all others need.

    `UnreadableSnapshot` names the fault, from the constructor or from `parts`.
    """

    __slots__ = ("_frames", "_low_n", "_raw", "head", "keyless", "read_bytes")

    def __init__(self, raw: bytes, cluster: str) -> None:
        self._raw = raw
        self._frames = list(_frames(raw))
        if not self._frames:
            raise UnreadableSnapshot("the snapshot does not decode: it is empty")
        self.head: Head = _decoded(self._content(self._frames[0]), Head)
        head = self.head
        if head.version > VERSION_NEWEST or head.level > LEVEL_NEWEST:
            raise UnreadableSnapshot(
                f"the snapshot has version {head.version} and feature level {head.level}; this release reads up to "
                f"version {VERSION_NEWEST} and level {LEVEL_NEWEST}: upgrade this node"
            )
        if head.cluster != cluster:
            raise ForeignSnapshot(head.cluster, cluster)
        try:
            self.keyless: Keyless = _decoded(self._content(self._frames[-1]), Keyless)
        except UnreadableSnapshot as error:
            raise UnreadableSnapshot(f"the snapshot is incomplete, its last part is not there: {error}") from None
        self._low_n = self.keyless.n
        self.read_bytes = 0  # of the file, by `parts`

    @property
    def size_bytes(self) -> int:
        return len(self._raw)

    @property
    def low(self) -> Position:
        """Replay begins after this record. Known when all parts were read."""
        return Position(self.keyless.epoch, self._low_n)

    @property
    def end(self) -> Position:
        """Every record up to this one was durable."""
        return Position(self.keyless.epoch, self.keyless.n)

    def parts(self) -> Iterator[Slice | QuarantineSlice]:
        """All parts but the last, decoded one by one: with ten million objects there is not memory for all of them."""
        tables = 0
        for frame in self._frames[1:-1]:
            part: Slice | QuarantineSlice = _decoded(self._content(frame), Slice | DiskSlice | QuarantineSlice)
            if isinstance(part, Slice):
                tables += part.table_count
                self._low_n = min(self._low_n, part.n)
            yield part
            self.read_bytes = frame.stop
        if tables != TABLES:
            raise UnreadableSnapshot(f"the snapshot is incomplete: it has {tables} of {TABLES} tables")

    def _content(self, frame: slice) -> bytes:
        body = memoryview(self._raw)[frame]
        crc = _FRAME.unpack_from(self._raw, frame.start - _FRAME.size)[1]
        if zlib.crc32(body) != crc:
            raise UnreadableSnapshot("a frame of the snapshot is damaged or cut off")
        try:
            return inflate(body, _FRAME_BYTES_MAX)
        except DoesNotInflate as error:
            raise UnreadableSnapshot(f"a frame of the snapshot does not decompress: {error}") from None


def load_snapshot(raw: bytes, cluster: str) -> Loaded:
    """Decode a whole file in one step."""
    reader = SnapshotReader(raw, cluster)
    parts = list(reader.parts())
    slices = tuple(part for part in parts if isinstance(part, Slice))
    quarantined = tuple(part for part in parts if isinstance(part, QuarantineSlice))
    return Loaded(reader.head, slices, quarantined, reader.keyless)


def _pack(value: Struct) -> bytes:
    body = deflate(_encoder.encode(value))
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _decoded(content: bytes, kind: object) -> Any:
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except UNDECODABLE as error:
        raise UnreadableSnapshot(f"the snapshot does not decode: {error}") from None


def _frames(raw: bytes) -> Iterator[slice]:
    """Where the content of each frame is."""
    at = 0
    while at < len(raw):
        if at + _FRAME.size > len(raw):
            raise UnreadableSnapshot("the snapshot ends in the middle of a frame")
        length, _ = _FRAME.unpack_from(raw, at)
        at += _FRAME.size
        if at + length > len(raw):
            raise UnreadableSnapshot("a frame of the snapshot is damaged or cut off")
        yield slice(at, at + length)
        at += length
