"""Frames of answers, put together from parts that the release's table has encoded once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from leasehold.base.codes import Code
from leasehold.base.measures import Calls
from leasehold.wire.body import head
from leasehold.wire.frame import MAGIC, RESPONSE_HEAD
from leasehold.wire.schema import I32, Type, counted

T = TypeVar("T")
DONE: Final = b"\x01"
_WIDTHS: Final = (1, 2, 4, 8)


def failure(code: int) -> bytes:
    """The payload of a failed result."""
    out = bytearray(b"\x00")
    I32.write(out, int(code), 1)
    return bytes(out)


class Refusals(dict[int, T]):
    """Prepared results of one function by their code. Taking one that is an error counts it."""

    def __init__(self, made: Mapping[int, T], calls: Calls, function: int) -> None:
        super().__init__(made)
        self._calls, self._function = calls, function

    def __getitem__(self, code: int) -> T:
        if code:
            self._calls.failed(self._function, code_name(code))
        return super().__getitem__(code)


def code_name(code: int) -> str:
    """The name of an error for metrics; the number for one that has no name here."""
    return Code(code).name if code in _CODES else str(int(code))


_CODES: Final = frozenset(int(code) for code in Code)


def framed(seq: int, body: bytes) -> bytes:
    return RESPONSE_HEAD.pack(MAGIC, 0, 0, 0, seq, len(body), 0) + body


def fixed(body: bytes) -> Callable[[int], bytes]:
    """Makes an answer in which only the sequence number differs."""
    layout = struct.Struct(f"<II{8 + len(body)}s")
    rest = struct.pack("<II", len(body), 0) + body

    def make(seq: int) -> bytes:
        return layout.pack(MAGIC, seq, rest)

    return make


def heads(type_: Type) -> dict[int, bytes]:
    """The head of an answer, by width; without the literal, which no client needs."""
    return {width: head(type_, width, literal=False) for width in _WIDTHS}


def width_for(count: int) -> int:
    """The narrowest width that can express `count`."""
    return 1 if count < 1 << 8 else 2 if count < 1 << 16 else 4


class CountedFronts(dict[int, bytes]):
    """The bytes between an answer's sequence number and its results, by the number of results of one size."""

    def __init__(self, front: dict[int, bytes], result_bytes: int) -> None:
        super().__init__()
        self._front = front
        self._result_bytes = result_bytes

    def __missing__(self, count: int) -> bytes:
        width = width_for(count)
        front = self._front[width] + counted(count, width)
        self[count] = made = struct.pack("<II", len(front) + count * self._result_bytes, 0) + front
        return made
