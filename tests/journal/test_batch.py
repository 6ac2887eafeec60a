"""Batches: the values of the journal's keys."""

from __future__ import annotations

import pytest

from leasehold.base import limits
from leasehold.index.records import Begin, Cause, Extent, PutEnd, PutStart, Record, Remove
from leasehold.journal.batch import (
    Hint,
    Renewal,
    UnloggedBatch,
    UnreadableBatch,
    decode_explicit,
    decode_unlogged,
    encode_explicit,
    encode_records,
    encode_unlogged,
)

RECORDS: list[Record] = [
    Begin(0, 7, 10_000, 10_000),
    PutStart(5, b"client", b"t", b"key", 4096, (Extent(3, 0), Extent(4, 64))),
    PutEnd(9, b"t", b"key", 2, checksum=17),
    Remove(11, b"t", b"key", 500, Cause.REMOVE),
]


def pack(records: list[Record], version: int = 2) -> bytes:
    return encode_explicit(7, 1, (0, 0), 3_000, 123, [encode_records([one]) for one in records], version)


@pytest.mark.parametrize("version", [1, 2])
def test_an_explicit_batch_survives_encoding_and_decoding(version: int) -> None:
    batch = decode_explicit(pack(RECORDS * 50, version))
    assert list(batch.records) == RECORDS * 50
    assert (batch.epoch, batch.first_n, batch.last_n, batch.right_ms, batch.wall_us) == (7, 1, 200, 3_000, 123)
    assert (batch.prev_epoch, batch.prev_n) == (0, 0)


def test_version_one_is_never_compressed_and_version_two_is_when_it_pays() -> None:
    long, short = pack(RECORDS * 50, 1), pack(RECORDS * 50, 2)
    assert len(short) < len(long) / 3
    assert len(pack(RECORDS[:1], 2)) == len(pack(RECORDS[:1], 1))


def test_the_same_records_give_the_same_bytes() -> None:
    """A retry sends the same bytes."""
    assert pack(RECORDS) == pack(RECORDS)


def test_every_damaged_byte_is_noticed() -> None:
    raw = pack(RECORDS)
    for at in range(len(raw)):
        damaged = raw[:at] + bytes([raw[at] ^ 0x40]) + raw[at + 1 :]
        with pytest.raises(UnreadableBatch):
            decode_explicit(damaged)
    for end in range(len(raw)):
        with pytest.raises(UnreadableBatch):
            decode_explicit(raw[:end])


def test_the_error_for_a_newer_version_recommends_an_upgrade() -> None:
    raw = bytearray(pack(RECORDS))
    raw[3] = 9
    with pytest.raises(UnreadableBatch, match="upgrade this node"):
        decode_explicit(bytes(raw))


def test_an_unlogged_batch_survives_encoding_and_decoding() -> None:
    renewals = tuple(Renewal(b"t", b"key-%d" % n, n, 1_000 + n, 0) for n in range(1_000))
    batch = UnloggedBatch(7, 3, 200, 4_000, True, 3_000, 5, renewals, (Hint(b"t", b"old", 9),))
    raw = encode_unlogged(batch)
    assert decode_unlogged(raw) == batch
    with pytest.raises(UnreadableBatch):
        decode_explicit(raw)


def test_a_full_unlogged_batch_of_long_keys_fits_its_limit() -> None:
    assert limits.unlogged_entries_max * 100 <= limits.journal_batch_bytes_max
