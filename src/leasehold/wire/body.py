"""The head of every payload: the type's hash, the width of lengths, and optionally the type's literal."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from leasehold.wire.errors import Malformed
from leasehold.wire.schema import Buffer, LengthOverflow, Type

_LITERAL_FOLLOWS = 0b100
_WIDTHS = (1, 2, 4, 8)


@lru_cache(maxsize=4096)
def type_hash(literal: bytes) -> int:
    """The hash that names a type, with bit 0 clear: that bit says whether a meta byte follows."""
    return int.from_bytes(hashlib.md5(literal, usedforsecurity=False).digest()[:4], "big") & 0xFFFFFFFE


def head(type_: Type, width: int = 1, *, literal: bool = True) -> bytes:
    """Everything in front of the payload. It is constant for a type and a width."""
    return _head(type_.literal, width, literal)


@lru_cache(maxsize=4096)
def _head(spelled: bytes, width: int, literal: bool) -> bytes:
    plain = type_hash(spelled)
    meta = _WIDTHS.index(width) << 3
    if literal:
        return (plain | 1).to_bytes(4, "little") + bytes([meta | _LITERAL_FOLLOWS]) + spelled + b"\x00"
    if width > 1:
        return (plain | 1).to_bytes(4, "little") + bytes([meta])
    return plain.to_bytes(4, "little")


def pack(type_: Type, value: Any, *, literal: bool = True) -> bytes:
    """The body for `value`, with the narrowest lengths that do. With its literal, as the wheels send it."""
    for width in _WIDTHS:
        out = bytearray(head(type_, width, literal=literal))
        try:
            type_.write(out, value, width)
        except LengthOverflow:
            continue
        return bytes(out)
    raise Malformed("no width is wide enough")


def open_body(type_: Type, data: Buffer) -> tuple[int, int]:
    """Check the head of a body: (where the payload begins, width of lengths). `Malformed` if it is another type's."""
    if len(data) < 4:
        raise Malformed("a body is at least a hash")
    found = int.from_bytes(data[:4], "little")
    if found & 0xFFFFFFFE != type_hash(type_.literal):
        raise Malformed(f"the hash 0x{found:08x} belongs to another type")
    if not found & 1:
        return 4, 1
    if len(data) < 5:
        raise Malformed("the meta byte is missing")
    width = _WIDTHS[data[4] >> 3 & 0b11]
    if not data[4] & _LITERAL_FOLLOWS:
        return 5, width
    end = 5 + len(type_.literal)
    if bytes(data[5:end]) != type_.literal or bytes(data[end : end + 1]) != b"\x00":
        raise Malformed("the literal is not the type's")
    return end + 1, width


def unpack(type_: Type, data: Buffer) -> Any:
    """The value in a body. Bytes after it are ignored, as the C++ master does."""
    at, width = open_body(type_, data)
    return type_.read(data, at, width)[0]


def hash_in(data: Buffer) -> int | None:
    """The type hash that a body claims, or None if it is too short to have one."""
    return int.from_bytes(data[:4], "little") & 0xFFFFFFFE if len(data) >= 4 else None
