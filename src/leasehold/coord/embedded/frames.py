"""How records lie in a file: frames, each of them checked, numbered, and whole or not there at all.

    magic (4) | number (8) | payload length (4) | payload CRC-32 (4) | CRC-32 of the twenty bytes before (4) | payload

One frame is what reached the disk together: one group commit. Its payload is a MessagePack array of records.
Reading stops at the first bytes that are no frame. If a whole frame stands anywhere after them the file is damaged
in its middle, and is refused: cutting there would lose what was acknowledged. Else they are what a write that never
ended left behind, and may be cut.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from zlib import crc32

import msgspec
from msgspec import Struct

from leasehold.mvcc.records import Record

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


def frame_at(data: bytes | memoryview, offset: int) -> Frame | None:
    """The frame that begins at `offset`, or None if there is no whole one."""
    body = offset + HEADER_BYTES
    if body > len(data):
        return None
    facts = bytes(data[offset : offset + _FACTS.size])
    magic, number, length, payload_crc = _FACTS.unpack(facts)
    if magic != MAGIC or _CHECK.unpack_from(data, offset + _FACTS.size)[0] != crc32(facts):
        return None
    payload = data[body : body + length]
    if len(payload) < length or crc32(payload) != payload_crc:
        return None
    try:
        return Frame(number, _decoder.decode(payload), body + length)
    except msgspec.DecodeError:
        return None


class Frames:
    """The frames of a file's content, from `offset` on. After iteration `end` is where they stop."""

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self._data = data
        self.end = offset

    def __iter__(self) -> Iterator[Frame]:
        view = memoryview(self._data)
        while (frame := frame_at(view, self.end)) is not None:
            self.end = frame.end
            yield frame

    @property
    def torn(self) -> bool:
        """Whether bytes are left over after the last frame."""
        return self.end < len(self._data)

    def next_whole(self) -> int | None:
        """Where, after bytes that are no frame, a whole frame stands; None if nowhere."""
        offset = self._data.find(MAGIC, self.end)
        while offset >= 0:
            if frame_at(self._data, offset) is not None:
                return offset
            offset = self._data.find(MAGIC, offset + 1)
        return None
