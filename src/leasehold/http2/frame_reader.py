"""Split a byte stream into frames."""

from __future__ import annotations

import struct
from collections.abc import Callable

from leasehold.http2.endpoint import FRAME_BYTES_MAX
from leasehold.http2.header_codec import ProtocolBroken

HEAD_BYTES = 9
_HEAD = struct.Struct(">IBI")
_PIECES_MAX = 256  # joined beyond this: a peer that sends single bytes must not cost us an object each


class FrameReader:
    """Calls `take` with every frame: kind, flags, stream, payload. `held` stops it; `feed(b"")` resumes.

    A large frame that arrives in small pieces is joined once, when it is complete.
    """

    __slots__ = ("_rest", "_rest_bytes", "_take", "_wanted", "held")

    def __init__(self, take: Callable[[int, int, int, bytes], None]) -> None:
        self._take = take
        self.held = False  # the receiver wants no more frames for now
        self._rest: list[bytes] = []  # an incomplete frame, or held frames
        self._rest_bytes = 0
        self._wanted = HEAD_BYTES  # bytes needed before the next frame can be read

    def feed(self, data: bytes) -> None:
        """Process received bytes. Raises `ProtocolBroken`, after which it must not be called again."""
        if self._rest:
            self._rest.append(data)
            self._rest_bytes += len(data)
            if self._rest_bytes < self._wanted:
                if len(self._rest) >= _PIECES_MAX:
                    self._rest = [b"".join(self._rest)]
                return
            data = b"".join(self._rest)
            self._rest.clear()
        place, end, wanted = 0, len(data), HEAD_BYTES
        while end - place >= HEAD_BYTES and not self.held:
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
            self._rest.append(data[place:])
            self._rest_bytes = end - place
        self._wanted = wanted
