"""A batch: the value of one journal key. Binary, versioned, checksummed, compressed when that makes it smaller. Pure.

Layout: `LHJ`, version, flags, kind, CRC-32 of these and of the stored body, body. The body is msgpack. Version 1 is
never compressed; version 2 may be (zstd). A writer uses the newest version that every live node reads.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from leasehold.base import limits
from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import PeerError
from leasehold.base.invariants import ensure
from leasehold.index.records import Record
from leasehold.journal.compression import DoesNotInflate, deflate, inflate

VERSION_OLDEST: Final = 1
VERSION_NEWEST: Final = 2
READS: Final = (VERSION_OLDEST, VERSION_NEWEST)

_HEAD: Final = struct.Struct("<3sBBBI")
_MAGIC: Final = b"LHJ"
_ZSTD: Final = 1
_COMPRESS_FROM_BYTES: Final = 512  # below this size the zstd frame costs what compression saves
_BODY_BYTES_MAX: Final = limits.journal_batch_bytes_max - _HEAD.size
KIND_EXPLICIT: Final = 0
KIND_UNLOGGED: Final = 1
NOT_STATED: Final = -1


class UnreadableBatch(PeerError):
    """A batch is damaged, or newer than this release reads. It is quarantined, and the node is not ready."""


class ExplicitBatch(Struct, frozen=True, array_like=True):
    """Records `first_n` .. `last_n` of one epoch, in the one chain without gaps.

    `prev_epoch`, `prev_n` name the last record of the predecessor, which readers check. `right_ms` is the length of the
    leader lease that this write gives: a successor waits that long after seeing it. `wall_us` is for people to read.
    """

    epoch: int
    first_n: int
    prev_epoch: int
    prev_n: int
    right_ms: int
    wall_us: int
    records: tuple[Record, ...]

    @property
    def last_n(self) -> int:
        return self.first_n + len(self.records) - 1


class Renewal(Struct, frozen=True, array_like=True, gc=False):
    """A lease renewal; its ends are in leader time. Only the newest of each object is written."""

    tenant: bytes
    key: bytes
    put_seq: int
    lease_end_ms: int
    soft_pin_end_ms: int


class Hint(Struct, frozen=True, array_like=True, gc=False):
    """The primary evicted this object: a successor may use its space immediately."""

    tenant: bytes
    key: bytes
    put_seq: int


class UnloggedBatch(Struct, frozen=True, array_like=True):
    """Renewals and hints, which no caller waits for. It takes effect once record `(epoch, as_of_n)` is applied.

    Beyond the epoch's tail it is void. `number` counts from 1 in each epoch without gaps, so that a reader notices
    missing batches. `complete`: every renewal up to `leader_ms` is in this batch or an earlier one. `expires`: this
    leader's policy is `expiry`; only then may a reader conclude from `complete` that an unrenewed lease has expired.
    `unheard_n`: this leader waits for the first ping of the owners of segments that were mounted before this record
    (H9); 0: it waits for none.
    """

    epoch: int
    number: int
    as_of_n: int
    leader_ms: int
    complete: bool
    right_ms: int
    wall_us: int
    renewals: tuple[Renewal, ...] = ()
    hints: tuple[Hint, ...] = ()
    expires: bool = False
    unheard_n: int = NOT_STATED


_encoder = msgspec.msgpack.Encoder()
_explicit_decoder = msgspec.msgpack.Decoder(ExplicitBatch)
_unlogged_decoder = msgspec.msgpack.Decoder(UnloggedBatch)
_HEAD_CHECKSUMS: Final = {
    (version, flags, kind): zlib.crc32(bytes((version, flags, kind)))
    for version in range(VERSION_OLDEST, VERSION_NEWEST + 1)
    for flags in range(256)
    for kind in (KIND_EXPLICIT, KIND_UNLOGGED)
}
_SMALL_ARRAYS: Final = [bytes((0x90 | count,)) for count in range(16)]
B = TypeVar("B")
Piece = tuple[int, bytes]  # the number of records, and their encoding


def encode_records(records: Sequence[Record]) -> Piece:
    """Encode records as a part of a batch. Each record is encoded once."""
    count = len(records)
    if count == 1:
        return 1, _encoder.encode(records[0])
    return count, _encoder.encode(records)[len(_array_head(count)) :]


def encode_explicit(
    epoch: int,
    first_n: int,
    prev: tuple[int, int],
    right_ms: int,
    wall_us: int,
    pieces: Sequence[Piece],
    version: int = VERSION_NEWEST,
) -> bytes:
    """A batch of records that `encode_records` has encoded."""
    head = _encoder.encode((epoch, first_n, prev[0], prev[1], right_ms, wall_us, ()))[:-1]  # without the empty array
    if len(pieces) == 1:
        count, encoded = pieces[0]
        return _frame(KIND_EXPLICIT, head + _array_head(count) + encoded, version)
    count = sum(count for count, _ in pieces)
    return _frame(KIND_EXPLICIT, head + _array_head(count) + b"".join([encoded for _, encoded in pieces]), version)


def _array_head(count: int) -> bytes:
    """The head of a msgpack array of `count` elements."""
    if count < 16:
        return _SMALL_ARRAYS[count]
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


def encode_unlogged(batch: UnloggedBatch, version: int = VERSION_NEWEST) -> bytes:
    return _frame(KIND_UNLOGGED, _encoder.encode(batch), version)


def _frame(kind: int, body: bytes, version: int) -> bytes:
    ensure(VERSION_OLDEST <= version <= VERSION_NEWEST, "a batch is written in a known version", version)
    flags = 0
    if version >= 2 and len(body) >= _COMPRESS_FROM_BYTES:
        smaller = deflate(body)
        if len(smaller) < len(body):
            body, flags = smaller, _ZSTD
    ensure(len(body) <= _BODY_BYTES_MAX, "P6 a batch fits its bound", len(body))
    return _HEAD.pack(_MAGIC, version, flags, kind, _checksum(version, flags, kind, body)) + body


def _checksum(version: int, flags: int, kind: int, body: bytes) -> int:
    return zlib.crc32(body, _HEAD_CHECKSUMS[version, flags, kind])


def decode_explicit(raw: bytes) -> ExplicitBatch:
    """The batch in a value of `journal/explicit/`; `UnreadableBatch` if it is damaged or too new."""
    return _decode(_explicit_decoder, raw, KIND_EXPLICIT)


def decode_unlogged(raw: bytes) -> UnloggedBatch:
    return _decode(_unlogged_decoder, raw, KIND_UNLOGGED)


def _decode(decoder: msgspec.msgpack.Decoder[B], raw: bytes, kind: int) -> B:
    if len(raw) < _HEAD.size:
        raise UnreadableBatch(f"a batch of {len(raw)} bytes is too short to be one")
    magic, version, flags, found, crc = _HEAD.unpack_from(raw)
    body = raw[_HEAD.size :]
    if magic != _MAGIC or found != kind:
        raise UnreadableBatch("this value is not a journal batch of the expected kind")
    if not VERSION_OLDEST <= version <= VERSION_NEWEST:
        raise UnreadableBatch(
            f"a batch of version {version}; this release reads up to {VERSION_NEWEST}: upgrade this node"
        )
    if _checksum(version, flags, kind, body) != crc:
        raise UnreadableBatch("a batch whose checksum does not match: its bytes were damaged")
    try:
        if flags & _ZSTD:
            body = inflate(body, 8 * limits.journal_batch_bytes_max)
        return decoder.decode(body)
    except (*UNDECODABLE, DoesNotInflate) as error:
        raise UnreadableBatch(f"a batch that does not decode: {error}") from None
