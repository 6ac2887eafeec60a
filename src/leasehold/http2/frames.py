"""HTTP/2 frames: kinds, flags, codes, encoding."""

from __future__ import annotations

import struct

from leasehold.http2.header_codec import ProtocolBroken

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 0x20
NO_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM = 0, 7, 11


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def header_frames(stream: int, block: bytes, frame_bytes_max: int) -> list[bytes]:
    """The frames of one header block: HEADERS, and CONTINUATION for the rest of a large one."""
    parts = [block[place : place + frame_bytes_max] for place in range(0, len(block), frame_bytes_max)]
    last = len(parts) - 1
    return [
        frame(CONTINUATION if number else HEADERS, END_HEADERS if number == last else 0, stream, part)
        for number, part in enumerate(parts)
    ]


def check(holds: object, otherwise: str) -> None:
    """A rule of HTTP/2: the connection of a peer that violates it is closed."""
    if not holds:
        raise ProtocolBroken(otherwise)


def unpadded(flags: int, payload: bytes) -> bytes:
    """A frame's payload without its padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ProtocolBroken("padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
