"""Compiled readers for the hot calls: straight-line Python for one type and one width.

The reference codec in `schema.py` dispatches on the type for every value. Here that happens once: the type is
compiled to the source of a function, with fixed-size neighbours read by one `struct` call and vectors of strings by
`read_strings`. A reader never reads past the end: an index error or a final check reports a body that is too short.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from leasehold.base.limits import wire_batch_items_max
from leasehold.wire.body import head, open_body
from leasehold.wire.errors import Malformed
from leasehold.wire.schema import Bytes, Opaque, Optional, Record, Scalar, Text, Tuple, Type, Vector
from leasehold.wire.text import escaped

Reader = Callable[[bytes], Any]
"""body -> value. `Malformed` if it is not of the type."""
PartReader = Callable[[bytes, int], tuple[Any, int]]
"""(data, at) -> (values, where the rest begins)."""

_TOO_SHORT = """\
  except (IndexError, OverflowError, struct_error):
    raise Malformed('the body is too short for its type') from None"""


@lru_cache(maxsize=1024)
def _equal_strings(width: int, length: int, count: int) -> struct.Struct:
    """For `count` strings of one `length`: a layout that reads them all."""
    return struct.Struct(f"{width}x{length}s" * count)


def read_strings(data: bytes, at: int, count: int, width: int) -> tuple[list[bytes] | tuple[bytes, ...], int]:
    """`count` strings. Keys often have the same length: a strided comparison detects that, then one call reads all."""
    if count > len(data) or count > wire_batch_items_max:
        raise Malformed("more strings than the message has, or than one request may name")
    if 8 <= count <= 1024 and width <= 2:
        length = data[at] if width == 1 else int.from_bytes(data[at : at + width], "little")
        stride = width + length
        end = at + stride * count
        if end <= len(data):
            same = data[at:end:stride] == data[at : at + 1] * count
            if same and (width == 1 or data[at + 1 : end : stride] == data[at + 1 : at + 2] * count):
                return _equal_strings(width, length, count).unpack_from(data, at), end
    return _read_each(data, at, count, width)


def _read_each(data: bytes, at: int, count: int, width: int) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    append = found.append
    if width == 1:
        for _ in range(count):
            start = at + 1
            at = start + data[at]
            append(data[start:at])
    else:
        for _ in range(count):
            start = at + width
            if start > len(data):
                raise Malformed("the message ends inside a length")
            at = start + int.from_bytes(data[at:start], "little")
            append(data[start:at])
    return found, at


class _Source:
    """Builds the source of one reader. Adjacent fields of fixed size are collected into one `unpack_from`."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "read_strings": read_strings,
            "struct_error": struct.error,
            "Malformed": Malformed,
            "escaped": escaped,
        }
        self._made = 0
        self._indent = "    "
        self._gathered: list[tuple[str, str]] = []

    def fresh(self, stem: str) -> str:
        self._made += 1
        return f"{stem}{self._made}"

    def bind(self, stem: str, value: Any) -> str:
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def emit(self, line: str) -> None:
        self.settle()
        self.lines.append(self._indent + line)

    def gather(self, layout: str) -> str:
        name = self.fresh("v")
        self._gathered.append((name, layout))
        return name

    def settle(self) -> None:
        """Write the gathered fields as one `unpack_from`."""
        if self._gathered:
            fields, self._gathered = self._gathered, []
            packer = struct.Struct("<" + "".join(layout for _, layout in fields))
            bound = self.bind("unpack", packer.unpack_from)
            names = ", ".join(name for name, _ in fields)
            self.lines.append(f"{self._indent}{names}, = {bound}(b, p); p += {packer.size}")

    def length(self) -> str:
        name = self.fresh("n")
        if self.width == 1:
            self.emit(f"{name} = b[p]; p += 1")
        else:
            self.emit(f"{name} = int.from_bytes(b[p:p + {self.width}], 'little'); p += {self.width}")
        return name

    def read(self, type_: Type) -> str:
        """Emit the code that reads one value; returns the expression for it."""
        if isinstance(type_, Scalar):
            return self.gather(type_.layout)
        if isinstance(type_, Opaque):
            return self.gather(f"{type_.size}s")
        if isinstance(type_, (Bytes, Text)):
            return self._string(type_)
        if isinstance(type_, Vector):
            return self._vector(type_)
        if isinstance(type_, Optional):
            return self._optional(type_)
        if isinstance(type_, Record):
            values = [self.read(member) for member in type_.members]
            self.settle()
            named = ", ".join(f"{name}={value}" for name, value in zip(type_.fields, values, strict=True))
            return f"{self.bind('make', type_.cls)}({named})"
        if isinstance(type_, Tuple):
            values = [self.read(member) for member in type_.members]
            self.settle()
            return f"({', '.join(values)},)"
        name = self.fresh("v")
        self.emit(f"{name}, p = {self.bind('read', type_.read)}(b, p, {self.width})")
        return name

    def _string(self, type_: Bytes | Text) -> str:
        length, name = self.length(), self.fresh("v")
        decoded = ".decode('utf-8', 'surrogateescape')" if isinstance(type_, Text) else ""
        self.emit(f"{name} = b[p:p + {length}]{decoded}; p += {length}")
        if decoded:  # `decode_text`, in line
            self.emit(f"if not {name}.isascii(): {name} = escaped({name})")
        return name

    def _vector(self, type_: Vector) -> str:
        count, name = self.length(), self.fresh("v")
        element = type_.element
        if type(element) is Bytes:
            self.emit(f"{name}, p = read_strings(b, p, {count}, {self.width})")
        elif isinstance(element, Scalar):
            bound = self.bind("unpack", struct.unpack_from)
            self.emit(f"{name} = {bound}(f'<{{{count}}}{element.layout}', b, p); p += {element.size} * {count}")
        else:
            self.emit(f"if {count} > {wire_batch_items_max}: raise Malformed('more than one request may name')")
            self.emit(f"{name} = []")
            self.emit(f"for _ in range({count}):")
            self._inside(lambda: self.emit(f"{name}.append({self._settled(element)})"))
        return name

    def _optional(self, type_: Optional) -> str:
        present, name = self.gather("B"), self.fresh("v")
        self.emit(f"{name} = None")
        self.emit(f"if {present}:")
        self._inside(lambda: self.emit(f"{name} = {self._settled(type_.inner)}"))
        return name

    def _settled(self, type_: Type) -> str:
        value = self.read(type_)
        self.settle()
        return value

    def _inside(self, block: Callable[[], None]) -> None:
        self._indent += "    "
        block()
        self.settle()
        self._indent = self._indent[:-4]


class Readers(dict[int, PartReader]):
    """Readers of the same types by width, compiled on first use: lengths wider than one byte are rare."""

    def __init__(self, types: tuple[Type, ...]) -> None:
        super().__init__()
        self._types = types

    def __missing__(self, width: int) -> PartReader:
        self[width] = part_reader(self._types, width)
        return self[width]


@lru_cache(maxsize=4096)
def part_reader(types: tuple[Type, ...], width: int) -> PartReader:
    """A reader for consecutive values at some position in a body; it returns them as a tuple.

    Cached: the types of the tables live as long as the process, and a promotion must not wait for compilation.
    """
    source = _Source(width)
    values = [source.read(type_) for type_ in types]
    source.settle()
    source.emit("if p > len(b): raise IndexError")
    source.emit(f"return ({', '.join(values)},), p")
    text = "\n".join(["def read(b, p):", "  try:", *source.lines, _TOO_SHORT])
    exec(compile(text, f"<reader of {len(types)} values, width {width}>", "exec"), source.names)
    made: PartReader = source.names["read"]
    return made


def body_reader(type_: Type, parts: slice | None = None) -> Callable[[bytes], tuple[Any, bytes, int, int]]:
    """A reader of whole bodies: (values, the body, where what was not read begins, width of lengths).

    `type_` is a tuple of arguments; `parts` limits what is read to its first members.
    """
    members = type_.members if isinstance(type_, Tuple) else (type_,)
    wanted = members[parts] if parts is not None else members
    readers = Readers(wanted)
    usual, usual_at, read_usual = head(type_, 1), len(head(type_, 1)), readers[1]

    def read(body: bytes) -> tuple[Any, bytes, int, int]:
        if body.startswith(usual):
            values, at = read_usual(body, usual_at)
            return values, body, at, 1
        at, width = open_body(type_, body)
        values, at = readers[width](body, at)
        return values, body, at, width

    return read


def argument_reader(type_: Type) -> Reader:
    """A reader of whole bodies: the arguments as a tuple. A single argument may also come wrapped in a struct."""
    alone = not isinstance(type_, Tuple)
    members = type_.members if isinstance(type_, Tuple) else (type_,)
    wrapped = Tuple(members)
    readers = Readers(members)
    usual, usual_at, read_usual = head(type_, 1), len(head(type_, 1)), readers[1]

    def arguments(body: bytes) -> Any:
        if body.startswith(usual):
            return read_usual(body, usual_at)[0]
        try:
            at, width = open_body(type_, body)
        except Malformed:
            if not alone:
                raise
            at, width = open_body(wrapped, body)
        return readers[width](body, at)[0]

    return arguments
