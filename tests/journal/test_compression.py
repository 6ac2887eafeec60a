"""Compressed values: the limit of their content holds before memory is taken for it."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest
import zstandard

from leasehold.base.limits import GIB, MIB
from leasehold.journal import batch as batches
from leasehold.journal.batch import UnreadableBatch, decode_explicit
from leasehold.journal.compression import DoesNotInflate, deflate, inflate
from leasehold.journal.snapshot_file import UnreadableSnapshot, load_snapshot


def bomb(size_bytes: int) -> bytes:
    """A small frame that states its large size, and keeps the promise."""
    writer = zstandard.ZstdCompressor(level=1).compressobj(size=size_bytes)
    piece = bytes(MIB)
    return b"".join([writer.compress(piece) for _ in range(size_bytes // MIB)]) + writer.flush()


def stated(size_bytes: int) -> bytes:
    """The head of a frame that states a size, and garbage."""
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size_bytes) + bytes(20)


def test_what_was_deflated_inflates() -> None:
    assert inflate(deflate(b"x" * 100_000), 100_000) == b"x" * 100_000
    with pytest.raises(DoesNotInflate, match="100000"):
        inflate(deflate(b"x" * 100_000), 99_999)
    with pytest.raises(DoesNotInflate):
        inflate(b"not compressed", 100)


@pytest.mark.parametrize("data", [bomb(64 * MIB), stated(GIB), stated(1 << 62)], ids=["whole", "1 GiB", "2^62"])
def test_a_batch_that_states_a_large_size_takes_no_memory(data: bytes) -> None:
    """A value of 33 KB took 1.1 GB of a standby's memory."""
    assert len(data) < 64 * 1024
    version, flags, kind = batches.VERSION_NEWEST, batches._ZSTD, batches.KIND_EXPLICIT
    head = batches._HEAD.pack(batches._MAGIC, version, flags, kind, batches._checksum(version, flags, kind, data))
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableBatch):
            decode_explicit(head + data)
        with pytest.raises(UnreadableSnapshot):
            load_snapshot(struct.pack("<II", len(data), zlib.crc32(data)) + data, "cluster")
        assert tracemalloc.get_traced_memory()[1] < 80 * MIB
    finally:
        tracemalloc.stop()
