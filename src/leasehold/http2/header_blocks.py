"""Header blocks, which may span several frames."""

from __future__ import annotations

from leasehold.http2.frames import END_HEADERS, HEADERS, PRIORITY, check, unpadded
from leasehold.http2.header_codec import BLOCK_BYTES_MAX, TOO_MUCH, HeaderReader, ProtocolBroken

# The limit of frames per block: a peer could send empty ones without end.
BLOCK_FRAMES_MAX = 100


class BlockReader:
    """Reads the blocks of one connection. Every block must be read, in order: the header table is state."""

    __slots__ = ("_begun", "_frames", "_reader")

    def __init__(self) -> None:
        self._reader = HeaderReader()
        self._begun: tuple[int, int, bytes] | None = None  # stream, flags, bytes so far
        self._frames = 0

    @property
    def under_way(self) -> bool:
        """Whether the next frame must be a CONTINUATION."""
        return self._begun is not None

    @property
    def work(self) -> int:
        """The decoding work of the last block, about one per field."""
        return self._reader.work

    def take(self, kind: int, flags: int, stream: int, payload: bytes) -> tuple[int, dict[bytes, bytes]] | None:
        """Process a HEADERS or CONTINUATION frame. Returns (flags of the first frame, headers) after the last one."""
        if kind == HEADERS:
            payload = unpadded(flags, payload)
            self._frames = 1
            if flags & PRIORITY:
                check(len(payload) >= 5, "headers that are too short for their priority")
                payload = payload[5:]
        else:
            if self._begun is None or self._begun[0] != stream:
                raise ProtocolBroken("a continuation of nothing")
            flags, payload = self._begun[1] | flags & END_HEADERS, self._begun[2] + payload
            self._frames += 1
        if len(payload) > BLOCK_BYTES_MAX or self._frames > BLOCK_FRAMES_MAX:
            limits = f"more than {BLOCK_BYTES_MAX} bytes or {BLOCK_FRAMES_MAX} frames"
            raise ProtocolBroken(f"a header block is too long: {limits}", TOO_MUCH)
        if not flags & END_HEADERS:
            self._begun = (stream, flags, payload)
            return None
        self._begun = None
        return flags, dict(self._reader.read(payload))
