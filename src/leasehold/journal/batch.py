"""A batch: what one key of the journal holds. Binary, versioned, checksummed, compressed when it pays. Pure.

Layout: `LHJ`, version, flags, kind, CRC-32 of these and of the body as it stands there, body. The body is msgpack.
Version 1 is never compressed; version 2 may be (zstd). A writer uses the oldest version that a live node reads.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
import zstandard
from msgspec import Struct

from leasehold.base import limits
from leasehold.base.errors import PeerError
from leasehold.base.invariants import ensure
from leasehold.index.records import Record

VERSION_OLDEST: Final = 1
VERSION_NEWEST: Final = 2
READS: Final = (VERSION_OLDEST, VERSION_NEWEST)

_HEAD: Final = struct.Struct("<3sBBBI")
_MAGIC: Final = b"LHJ"
_ZSTD: Final = 1
_COMPRESS_FROM_BYTES: Final = 512  # below that the frame costs about what compression wins
_BODY_BYTES_MAX: Final = limits.journal_batch_bytes_max - _HEAD.size
KIND_EXPLICIT: Final = 0
KIND_BULK: Final = 1
NOT_TOLD: Final = -1


class UnreadableBatch(PeerError):
    """A batch is damaged, or newer than this release reads. It is set aside, and its node is not ready."""


class ExplicitBatch(Struct, frozen=True, array_like=True):
    """Records `first_n` .. `last_n` of one epoch, in the one dense chain.

    `prev_epoch`, `prev_n` name the last record of the predecessor: that is what is checked for gaps.
    `right_ms` is how long this write lets its leader serve: a successor waits that long after seeing it.
    `wall_us` is for people.
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
    """Ends in leader time. Only the newest per object is told."""

    tenant: bytes
    key: bytes
    put_seq: int
    lease_end_ms: int
    soft_pin_end_ms: int


class Hint(Struct, frozen=True, array_like=True, gc=False):
    """The primary evicted this object: a successor may use its space at once."""

    tenant: bytes
    key: bytes
    put_seq: int


class UnloggedBatch(Struct, frozen=True, array_like=True):
    """What nobody waits for. It counts once record `(epoch, as_of_n)` has been applied; beyond the tail it is void.

    `number` is dense per epoch from 1, so that a reader knows what it missed. `complete`: every renewal up to
    `leader_ms` is in this batch or in an earlier one. `expires`: what has ended is over for this leader (its policy is
    `expiry`): only then may whoever reads this conclude that from `complete`. `unheard_n`: this leader waits for the
    first ping of the owners of segments that were mounted before this record (H9); 0: for nobody any more.
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
    unheard_n: int = NOT_TOLD


_encoder = msgspec.msgpack.Encoder()
_explicit_decoder = msgspec.msgpack.Decoder(ExplicitBatch)
_bulk_decoder = msgspec.msgpack.Decoder(UnloggedBatch)
_compressor = zstandard.ZstdCompressor(level=1, write_checksum=False)
_decompressor = zstandard.ZstdDecompressor()
_HEAD_CHECKSUMS: Final = {
    (version, flags, kind): zlib.crc32(bytes((version, flags, kind)))
    for version in range(VERSION_OLDEST, VERSION_NEWEST + 1)
    for flags in range(256)
    for kind in (KIND_EXPLICIT, KIND_BULK)
}
_SMALL_ARRAYS: Final = [bytes((0x90 | count,)) for count in range(16)]
B = TypeVar("B")
Piece = tuple[int, bytes]  # how many records, and these encoded


def encode_records(records: Sequence[Record]) -> Piece:
    """Records as they stand in a batch, side by side: each is encoded once, in one go with its neighbours."""
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
    head = _encoder.encode((epoch, first_n, prev[0], prev[1], right_ms, wall_us, ()))[:-1]  # without "no records"
    if len(pieces) == 1:
        count, encoded = pieces[0]
        return _frame(KIND_EXPLICIT, head + _array_head(count) + encoded, version)
    count = sum(count for count, _ in pieces)
    return _frame(KIND_EXPLICIT, head + _array_head(count) + b"".join([encoded for _, encoded in pieces]), version)


def _array_head(count: int) -> bytes:
    """How msgpack begins an array of so many elements."""
    if count < 16:
        return _SMALL_ARRAYS[count]
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


def encode_unlogged(batch: UnloggedBatch, version: int = VERSION_NEWEST) -> bytes:
    return _frame(KIND_BULK, _encoder.encode(batch), version)


def _frame(kind: int, body: bytes, version: int) -> bytes:
    ensure(VERSION_OLDEST <= version <= VERSION_NEWEST, "a batch is written in a version that we have", version)
    flags = 0
    if version >= 2 and len(body) >= _COMPRESS_FROM_BYTES:
        smaller = _compressor.compress(body)
        if len(smaller) < len(body):
            body, flags = smaller, _ZSTD
    ensure(len(body) <= _BODY_BYTES_MAX, "P6 a batch fits its bound", len(body))
    return _HEAD.pack(_MAGIC, version, flags, kind, _checksum(version, flags, kind, body)) + body


def _checksum(version: int, flags: int, kind: int, body: bytes) -> int:
    return zlib.crc32(body, _HEAD_CHECKSUMS[version, flags, kind])


def decode_explicit(raw: bytes) -> ExplicitBatch:
    """The batch in a value of `journal/explicit/`; `UnreadableBatch` says what is wrong with it."""
    return _decode(_explicit_decoder, raw, KIND_EXPLICIT)


def decode_unlogged(raw: bytes) -> UnloggedBatch:
    return _decode(_bulk_decoder, raw, KIND_BULK)


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
            body = _decompressor.decompress(body, max_output_size=8 * limits.journal_batch_bytes_max)
        return decoder.decode(body)
    except (msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise UnreadableBatch(f"a batch that does not decode: {error}") from None
