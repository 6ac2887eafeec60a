"""Bytes into frames, however they come."""

from __future__ import annotations

import struct
from collections.abc import Callable

from leasehold.coord.http2.end import FRAME_BYTES_MAX
from leasehold.coord.http2.headers import ProtocolBroken

HEAD_BYTES = 9
_HEAD = struct.Struct(">IBI")


class FrameReader:
    """`take` gets every frame: kind, flags, stream, payload.

    Of a large frame that comes in small pieces nothing is copied again and again: it is looked at when it is whole.
    """

    __slots__ = ("_rest", "_take", "_wanted")

    def __init__(self, take: Callable[[int, int, int, bytes], None]) -> None:
        self._take = take
        self._rest = bytearray()  # of a frame that is not whole
        self._wanted = HEAD_BYTES  # with fewer there is no use in looking again

    def feed(self, data: bytes) -> None:
        """Take what has come. Raises `ProtocolBroken`, after which it must not be fed again."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data = bytes(self._rest)
            self._rest.clear()
        place, end, wanted = 0, len(data), HEAD_BYTES
        while end - place >= HEAD_BYTES:
            length_kind, flags, stream = _HEAD.unpack_from(data, place)
            length = length_kind >> 8
            if length > FRAME_BYTES_MAX:
                raise ProtocolBroken("a frame is too long")
            if end - place - HEAD_BYTES < length:
                wanted = HEAD_BYTES + length
                break
            place += HEAD_BYTES
            payload = data[place : place + length]
            place += length
            self._take(length_kind & 0xFF, flags, stream & 0x7FFFFFFF, payload)
        if place < end:
            self._rest += data[place:]
        self._wanted = wanted
