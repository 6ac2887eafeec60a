"""Patterns over keys: linear time, whatever the pattern, so that nobody can stall the master with one."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import re2

from leasehold.base.errors import InvalidArgument
from leasehold.base.limits import pattern_bytes_max


class Pattern(Protocol):
    """What a compiled pattern can do for us."""

    def search(self, text: bytes, /) -> object: ...


class BadPattern(InvalidArgument):
    """A pattern that cannot be read; `position` is where, in bytes."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"bad pattern at position {position}: {reason}")
        self.position = position


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
