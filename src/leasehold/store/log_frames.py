"""The file format of records: frames with a number and a checksum, each complete or ignored.

    magic (4) | number (8) | payload length (4) | payload CRC-32 (4) | CRC-32 of the twenty bytes before (4) | payload

One frame is what reached the disk together: one group commit. Its payload is a MessagePack array of records.
Reading stops at the first bytes that are no frame. If a whole frame that may be a later one stands anywhere after them
the file is damaged in its middle, and is refused: cutting there would lose what was acknowledged. Else they are what a
write that never ended left behind, or zeros that were written ahead, and may be cut. A frame that is whole and cannot
be understood is neither: it was acknowledged, by another version of this program.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from zlib import crc32

import msgspec
from msgspec import Struct

from leasehold.base.decoding import UNDECODABLE
from leasehold.mvcc.records import Record
from leasehold.store.errors import StoreDamaged

MAGIC = b"LHf1"
_FACTS = struct.Struct("<4sQII")
_CHECK = struct.Struct("<I")
HEADER_BYTES = _FACTS.size + _CHECK.size

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])


def encode_frame(number: int, records: Sequence[Record]) -> bytes:
    """One frame with `records`."""
    payload = _encoder.encode(records)
    facts = _FACTS.pack(MAGIC, number, len(payload), crc32(payload))
    return b"".join((facts, _CHECK.pack(crc32(facts)), payload))


class Frame(Struct, frozen=True):
    number: int
    records: list[Record]
    end: int  # offset of the first byte after it


class _Header(Struct, frozen=True):
    number: int
    payload_crc: int
    body: int  # offset of the payload
    end: int  # offset of the first byte after it


def _header_at(data: bytes | memoryview, offset: int) -> _Header | None:
    """The header at `offset`, whether or not its payload is complete."""
    body = offset + HEADER_BYTES
    if body > len(data):
        return None
    facts = bytes(data[offset : offset + _FACTS.size])
    magic, number, length, payload_crc = _FACTS.unpack(facts)
    if magic != MAGIC or _CHECK.unpack_from(data, offset + _FACTS.size)[0] != crc32(facts):
        return None
    return _Header(number, payload_crc, body, body + length)


def _is_whole(data: bytes | memoryview, header: _Header) -> bool:
    return header.end <= len(data) and crc32(data[header.body : header.end]) == header.payload_crc


class Frames:
    """The frames of a file's content, from `offset` on. After iteration `end` is the offset where they stop.

    `number` is that of the last frame before them, 0 if it is not known.
    """

    def __init__(self, data: bytes, offset: int = 0, name: str = "the log", number: int = 0) -> None:
        self._data = data
        self._name = name
        self._number = number
        self.end = offset

    def __iter__(self) -> Iterator[Frame]:
        view = memoryview(self._data)
        while (header := _header_at(view, self.end)) is not None and _is_whole(view, header):
            try:
                records = _decoder.decode(view[header.body : header.end])
            except UNDECODABLE as error:
                raise StoreDamaged(
                    f"{self._name}: frame {header.number} at byte {self.end} is complete, but this version cannot read "
                    f"it ({error}): open it with the version that wrote it. Nothing was changed"
                ) from None
            self.end = header.end
            self._number = header.number
            yield Frame(header.number, records, header.end)

    @property
    def torn(self) -> bool:
        """Whether there are bytes after the last frame."""
        return self.end < len(self._data)

    def next_whole(self) -> int | None:
        """The offset of a complete frame after bytes that are not one; None if there is none."""
        torn = _header_at(self._data, self.end)
        # Bytes inside a payload are data, even if they look like frames: a value may be a copy of such a file.
        offset = self._data.find(MAGIC, self.end if torn is None else torn.end)
        while offset >= 0:
            header = _header_at(self._data, offset)
            if header is not None and _is_whole(self._data, header) and self._may_follow(header):
                return offset
            offset = self._data.find(MAGIC, offset + 1)
        return None

    def _may_follow(self, header: _Header) -> bool:
        """Check the number: a copy of a log inside a payload, whose own header never reached the disk, is data too."""
        between = (header.body - HEADER_BYTES - self.end) // HEADER_BYTES
        return not self._number or 0 < header.number - self._number <= between + 1
