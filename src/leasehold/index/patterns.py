"""Patterns over keys: linear time in the key, so that nobody can stall the master with one.

Linear is not yet short: for each byte of a key, each instruction of the compiled pattern may be looked at. So these are
bounded, too, and whoever matches many keys in one step counts them by that (`work_of`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Protocol

import re2

from leasehold.base.errors import InvalidArgument
from leasehold.base.limits import pattern_bytes_max, pattern_instructions_max


class Pattern(Protocol):
    """What a compiled pattern can do for us."""

    def search(self, text: bytes, /) -> object: ...

    @property
    def programsize(self) -> int: ...


class BadPattern(InvalidArgument):
    """A pattern that cannot be read; `position` is where, in bytes."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"bad pattern at position {position}: {reason}")
        self.position = position


def accept_pattern(pattern: bytes) -> Pattern:
    """A pattern that somebody asks for: as `compile_pattern`, and refused if matching it could take too long."""
    compiled = compile_pattern(pattern)
    if compiled.programsize > pattern_instructions_max:
        raise BadPattern("too complex: repeat less often, or ask in several steps", len(pattern))
    return compiled


def work_of(pattern: Pattern, keys: Collection[bytes]) -> int:
    """How much it can be to match these keys, counted in keys of the usual length and patterns of the usual kind."""
    return len(keys) + (sum(map(len, keys)) * pattern.programsize >> 12)


@lru_cache(maxsize=64)
def compile_pattern(pattern: bytes) -> Pattern:
    """Compile, or raise `BadPattern` with the position of what is wrong."""
    if len(pattern) > pattern_bytes_max:
        raise BadPattern(f"longer than {pattern_bytes_max} bytes", pattern_bytes_max)
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1  # keys are bytes: one byte is one character
    try:
        compiled: Pattern = re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else b"cannot be compiled"
        text = reason.decode("latin-1") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(text, _position(pattern, text)) from None
    return compiled


def _position(pattern: bytes, reason: str) -> int:
    """RE2 tells the offending piece after the last colon, not where it is."""
    piece = reason.rpartition(": ")[2].encode("latin-1", "replace")
    found = pattern.rfind(piece) if piece else -1
    return found if found >= 0 else len(pattern)
