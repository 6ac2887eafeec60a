"""The types of struct_pack: each has its type literal, and reads and writes values.

This is the reference codec: it walks the type for every value. `compiler.py` compiles the same types to straight-line
Python for the hot calls, and tests compare the two.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from leasehold.wire.errors import Malformed, NotEncodable
from leasehold.wire.text import decode_text, encode_text

Buffer = bytes | bytearray | memoryview


class LengthOverflow(Exception):
    """A length does not fit into the current width: the message is written again with a wider one."""


class Failed(Struct, frozen=True):
    """The error case of an `expected`: an error code of the master."""

    code: int


def size_literal(number: int) -> bytes:
    """A number in a type literal: base-127 digits, lowest first; the last one has an offset of 129."""
    digits = bytearray()
    while number >= 127:
        digits.append(number % 127 + 1)
        number //= 127
    digits.append(number + 129)
    return bytes(digits)


_STRING_LITERAL = b"\x80\x0c"


class Type:
    """A wire type. `width` is the size in bytes of every length field in the message."""

    # Python values differ per type and are checked when they are written: hence `Any`, only here.

    def __init__(self, literal: bytes) -> None:
        self.literal = literal

    def write(self, out: bytearray, value: Any, width: int) -> None:
        raise NotImplementedError

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        """The value at `at`, and the position after it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.literal.hex()}>"


class Scalar(Type):
    def __init__(self, code: int, layout: str) -> None:
        super().__init__(bytes([code]))
        self.layout = layout
        self.packer = struct.Struct("<" + layout)
        self.size = self.packer.size

    def write(self, out: bytearray, value: Any, width: int) -> None:
        try:
            out += self.packer.pack(value)
        except struct.error as error:
            raise NotEncodable(f"{value!r} does not fit its type on the wire: {error}") from None

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        end = at + self.size
        if end > len(data):
            raise Malformed("the message ends inside a number")
        return self.packer.unpack_from(data, at)[0], end


class Bytes(Type):
    """A string; on this wire it may contain any bytes."""

    def __init__(self) -> None:
        super().__init__(_STRING_LITERAL)

    def write(self, out: bytearray, value: Any, width: int) -> None:
        write_length(out, len(value), width)
        out += value

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        return _read_string(data, at, width)


class Text(Type):
    """A text field. Bytes that are not valid UTF-8 survive the round trip, and every encoder accepts the result."""

    def __init__(self) -> None:
        super().__init__(_STRING_LITERAL)

    def write(self, out: bytearray, value: Any, width: int) -> None:
        try:
            raw = encode_text(value)
        except UnicodeEncodeError as error:
            raise NotEncodable(f"{value!r} is no text: {error.reason}") from None
        write_length(out, len(raw), width)
        out += raw

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        raw, at = _read_string(data, at, width)
        return decode_text(raw), at


class Vector(Type):
    def __init__(self, element: Type) -> None:
        self.element = element
        super().__init__(b"\x84" + element.literal)

    def write(self, out: bytearray, value: Any, width: int) -> None:
        write_length(out, len(value), width)
        for element in value:
            self.element.write(out, element, width)

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        count, at = read_length(data, at, width)
        if count > len(data):  # every element takes at least a byte: a count beyond that is a lie
            raise Malformed("the message is shorter than its count of elements")
        values = []
        for _ in range(count):
            value, at = self.element.read(data, at, width)
            values.append(value)
        return values, at


class Map(Type):
    def __init__(self, key: Type, value: Type) -> None:
        self.key = key
        self.value = value
        super().__init__(b"\x82" + key.literal + value.literal)

    def write(self, out: bytearray, value: Any, width: int) -> None:
        write_length(out, len(value), width)
        for name, content in value.items():
            self.key.write(out, name, width)
            self.value.write(out, content, width)

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        count, at = read_length(data, at, width)
        values = {}
        for _ in range(count):
            name, at = self.key.read(data, at, width)
            values[name], at = self.value.read(data, at, width)
        return values, at


class Optional(Type):
    def __init__(self, inner: Type) -> None:
        self.inner = inner
        super().__init__(b"\x85" + inner.literal)

    def write(self, out: bytearray, value: Any, width: int) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(1)
            self.inner.write(out, value, width)

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        present, at = read_byte(data, at)
        return self.inner.read(data, at, width) if present else (None, at)


class Variant(Type):
    """One of several records, distinguished by their Python class."""

    def __init__(self, *alternatives: Record) -> None:
        self.alternatives = alternatives
        self.index_of = {alternative.cls: index for index, alternative in enumerate(alternatives)}
        super().__init__(b"\x86" + b"".join(each.literal for each in alternatives) + b"\xff")

    def write(self, out: bytearray, value: Any, width: int) -> None:
        index = self.index_of.get(type(value))
        if index is None:
            raise NotEncodable(f"this release has no alternative for a {type(value).__name__}")
        out.append(index)
        self.alternatives[index].write(out, value, width)

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        index, at = read_byte(data, at)
        if index >= len(self.alternatives):
            raise Malformed(f"a variant has no alternative {index}")
        return self.alternatives[index].read(data, at, width)


class Expected(Type):
    """A value, or `Failed(code)`."""

    def __init__(self, inner: Type, error: Scalar) -> None:
        self.inner = inner
        self.error = error
        super().__init__(b"\x87" + inner.literal + error.literal)

    def write(self, out: bytearray, value: Any, width: int) -> None:
        if isinstance(value, Failed):
            out.append(0)
            self.error.write(out, value.code, width)
        else:
            out.append(1)
            self.inner.write(out, value, width)

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        good, at = read_byte(data, at)
        if good:
            return self.inner.read(data, at, width)
        code, at = self.error.read(data, at, width)
        return Failed(code), at


class Void(Type):
    def __init__(self) -> None:
        super().__init__(b"\xfa")

    def write(self, out: bytearray, value: Any, width: int) -> None:
        pass

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        return None, at


class Opaque(Type):
    """A "trivial" type of scalars only, kept as its bytes: the UUID, which is never interpreted."""

    def __init__(self, *members: Scalar, alignment: int) -> None:
        self.size = sum(member.size for member in members)
        size_tag = size_literal(alignment)
        super().__init__(b"\xfd" + b"".join(member.literal for member in members) + size_tag + size_tag + b"\xff")

    def write(self, out: bytearray, value: Any, width: int) -> None:
        if len(value) != self.size:
            raise NotEncodable(f"an id has {self.size} bytes, not {len(value)}")
        out += value

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        end = at + self.size
        if end > len(data):
            raise Malformed("the message ends inside an id")
        return bytes(data[at:end]), end


class Tuple(Type):
    """Members without names: the arguments of a call."""

    def __init__(self, members: Sequence[Type]) -> None:
        super().__init__(_struct_literal(members))
        self.members = tuple(members)

    def write(self, out: bytearray, value: Any, width: int) -> None:
        if len(value) != len(self.members):
            raise NotEncodable(f"{len(self.members)} values are wanted, not {len(value)}")
        for member, item in zip(self.members, value, strict=True):
            member.write(out, item, width)

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        values, at = _read_members(self.members, data, at, width)
        return tuple(values), at


class Record(Type):
    """A struct with its own Python class; `fields` are in wire order."""

    def __init__(self, cls: type[Any], **fields: Type) -> None:
        self.members = tuple(fields.values())
        super().__init__(_struct_literal(self.members))
        self.cls = cls
        self.fields = fields

    def write(self, out: bytearray, value: Any, width: int) -> None:
        if type(value) is not self.cls:
            raise NotEncodable(f"a {self.cls.__name__} was expected, not a {type(value).__name__}")
        for name, member in self.fields.items():
            member.write(out, getattr(value, name), width)

    def read(self, data: Buffer, at: int, width: int) -> tuple[Any, int]:
        values, at = _read_members(self.members, data, at, width)
        return self.cls(**dict(zip(self.fields, values, strict=True))), at


def _struct_literal(members: Sequence[Type]) -> bytes:
    """The type of a struct or tuple: consecutive members without padding."""
    return b"\xfd" + b"".join(member.literal for member in members) + b"\xff"


def _read_members(members: Sequence[Type], data: Buffer, at: int, width: int) -> tuple[list[Any], int]:
    values = []
    for member in members:
        value, at = member.read(data, at, width)
        values.append(value)
    return values, at


def _read_string(data: Buffer, at: int, width: int) -> tuple[bytes, int]:
    length, at = read_length(data, at, width)
    end = at + length
    if end > len(data):
        raise Malformed("the message ends inside a string")
    return bytes(data[at:end]), end


def write_length(out: bytearray, length: int, width: int) -> None:
    try:
        out += length.to_bytes(width, "little")
    except OverflowError:
        raise LengthOverflow from None


@lru_cache(maxsize=4096)
def counted(length: int, width: int) -> bytes:
    """A length field alone."""
    out = bytearray()
    write_length(out, length, width)
    return bytes(out)


def read_length(data: Buffer, at: int, width: int) -> tuple[int, int]:
    end = at + width
    if end > len(data):
        raise Malformed("the message ends inside a length")
    return int.from_bytes(data[at:end], "little"), end


def read_byte(data: Buffer, at: int) -> tuple[int, int]:
    if at >= len(data):
        raise Malformed("the message ends too early")
    return data[at], at + 1


I32, U32, I64, U64 = Scalar(0x01, "i"), Scalar(0x02, "I"), Scalar(0x03, "q"), Scalar(0x04, "Q")
I8, U8, I16, U16 = Scalar(0x05, "b"), Scalar(0x06, "B"), Scalar(0x07, "h"), Scalar(0x08, "H")
BOOL = Scalar(0x0B, "?")
F32, F64 = Scalar(0x11, "f"), Scalar(0x12, "d")
BYTES, TEXT, VOID = Bytes(), Text(), Void()
UUID = Opaque(U64, U64, alignment=8)
