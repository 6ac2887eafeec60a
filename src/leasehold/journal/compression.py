"""Compression of journal values and snapshots. The size of the output is bounded before memory is allocated for it."""

from __future__ import annotations

import zstandard

_compressor = zstandard.ZstdCompressor(level=1, write_checksum=False)
_decompressor = zstandard.ZstdDecompressor()


class DoesNotInflate(ValueError):
    """Bytes that are not a compressed value, or one that is too large."""


def deflate(data: bytes) -> bytes:
    """The compressed data."""
    return _compressor.compress(data)


def inflate(data: bytes | memoryview, bytes_max: int) -> bytes:
    """The data that was compressed. Raises `DoesNotInflate`.

    A frame may state its size. zstandard then allocates that much and ignores its own limit, so the limit is checked
    here: a few kilobytes could otherwise take gigabytes.
    """
    try:
        stated = zstandard.frame_content_size(data)
        if stated > bytes_max:
            raise DoesNotInflate(f"it states a size of {stated} bytes; the limit is {bytes_max}")
        return _decompressor.decompress(data, max_output_size=bytes_max)
    except zstandard.ZstdError as error:
        raise DoesNotInflate(str(error)) from None
