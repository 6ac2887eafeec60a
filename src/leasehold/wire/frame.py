"""The headers of coro_rpc. Everything is little-endian; there is no handshake and no greeting.

    request   magic, version, serialize type, message type (u8 each) | seq, function, body, attachment (u32 each)
    response  magic, version, error,          message type (u8 each) | seq,           body, attachment (u32 each)

Answers are matched to requests by `seq`, in any order. Message type 1 in a response is Leasehold's own: a
*push*, which answers no request. It goes only to connections that have used one of Leasehold's own functions, and its
`seq` is the function's id.
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum
from typing import Final

from msgspec import Struct

from leasehold.wire.errors import BadFrame

MAGIC: Final = 0x15
VERSION: Final = 0
STRUCT_PACK: Final = 0
ANSWER: Final = 0
PUSH: Final = 1

REQUEST_HEAD: Final = struct.Struct("<BBBBIIII")
RESPONSE_HEAD: Final = struct.Struct("<BBBBIII")
REQUEST_HEAD_BYTES: Final = REQUEST_HEAD.size
RESPONSE_HEAD_BYTES: Final = RESPONSE_HEAD.size


class Err(IntEnum):
    """The error byte of a response; everything but `OK` has a message for a body."""

    OK = 0
    IO = 1
    NOT_CONNECTED = 2
    TIMED_OUT = 3
    INVALID_ARGUMENT = 4
    CANCELLED = 9
    INTERRUPTED = 10
    NOT_REGISTERED = 11
    PROTOCOL = 12
    TOO_LARGE = 14


def function_id(name: str) -> int:
    """The id of a function: of its fully qualified C++ name, or of a name of ours such as `leasehold::host::Read`."""
    made = int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest()[:4], "big")
    _NAMES[made] = name.rpartition("::")[2]
    return made


_NAMES: dict[int, str] = {}  # of every function that has a table or a declaration here


def function_name(function: int) -> str:
    """The name behind an id, without its namespace; the id itself if no function of this name was declared."""
    return _NAMES.get(function, hex(function))


class Response(Struct, frozen=True):
    """A response as it came: not yet known to be right."""

    seq: int
    err: int
    kind: int
    body: bytes
    attachment: bytes


def request(seq: int, function: int, body: bytes, attachment: bytes = b"") -> bytes:
    """A request, ready to send."""
    return (
        REQUEST_HEAD.pack(MAGIC, VERSION, STRUCT_PACK, 0, seq, function, len(body), len(attachment)) + body + attachment
    )


def response(seq: int, body: bytes, *, err: int = Err.OK, kind: int = ANSWER, attachment: bytes = b"") -> bytes:
    """A response, ready to send."""
    return RESPONSE_HEAD.pack(MAGIC, VERSION, err, kind, seq, len(body), len(attachment)) + body + attachment


def lone_push(data: bytes) -> tuple[int, bytes] | None:
    """The function and the body, if `data` is one push and nothing else: what pushes mostly are."""
    if len(data) < RESPONSE_HEAD_BYTES:
        return None
    magic, version, _, kind, function, body_bytes, attachment_bytes = RESPONSE_HEAD.unpack_from(data)
    if kind != PUSH or attachment_bytes or body_bytes != len(data) - RESPONSE_HEAD_BYTES:
        return None
    return (function, data[RESPONSE_HEAD_BYTES:]) if magic == MAGIC and version == VERSION else None


class ResponseReader:
    """Cuts a stream into responses. Pure: bytes in, responses out."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._partial = bytearray()
        self._wanted = 0  # bytes until what was kept is a whole response
        self._frame_bytes_max = frame_bytes_max

    @property
    def between(self) -> bool:
        """Whether the stream is between two responses."""
        return not self._partial

    def feed(self, data: bytes) -> list[Response]:
        """Every response that is complete now."""
        if self._partial:
            self._partial += data
            if len(self._partial) < self._wanted:
                return []
            data = bytes(self._partial)
            self._partial.clear()
        found: list[Response] = []
        at, size, wanted = 0, len(data), RESPONSE_HEAD_BYTES
        while size - at >= RESPONSE_HEAD_BYTES:
            magic, version, err, kind, seq, body_bytes, attachment_bytes = RESPONSE_HEAD.unpack_from(data, at)
            if magic != MAGIC or version != VERSION:
                raise BadFrame(f"no response begins with {data[at : at + 4].hex()}")
            if body_bytes + attachment_bytes > self._frame_bytes_max:
                raise BadFrame(f"a response of {body_bytes + attachment_bytes} bytes is over the bound")
            body = at + RESPONSE_HEAD_BYTES
            end = body + body_bytes + attachment_bytes
            if size < end:
                wanted = end - at
                break
            middle = body + body_bytes
            found.append(Response(seq, err, kind, data[body:middle], data[middle:end]))
            at = end
        if at < size:
            self._partial += data[at:]
            self._wanted = wanted
        return found
