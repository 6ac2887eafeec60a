"""Patterns over keys. Matching takes time linear in the key, so that no client can stall the master with a pattern.

Linear is not yet short: for each byte of a key, each instruction of the compiled pattern may be looked at. So the
number of instructions is bounded too, and steps over many keys are measured by `work_of`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Protocol

import re2

from leasehold.base.errors import InvalidArgument
from leasehold.base.limits import pattern_bytes_max, pattern_instructions_max


class Pattern(Protocol):
    """The methods of a compiled pattern that we use."""

    def search(self, text: bytes, /) -> object: ...

    @property
    def programsize(self) -> int: ...


class BadPattern(InvalidArgument):
    """A malformed pattern; `position` is the place of the error, in bytes."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"bad pattern at position {position}: {reason}")
        self.position = position


def accept_pattern(pattern: bytes) -> Pattern:
    """Compile a client's pattern, as `compile_pattern`; refused if matching it could take too long."""
    compiled = compile_pattern(pattern)
    if compiled.programsize > pattern_instructions_max:
        raise BadPattern("too complex: use fewer repetitions, or several patterns", len(pattern))
    return compiled


def work_of(pattern: Pattern, keys: Collection[bytes]) -> int:
    """The work to match these keys, counted in keys of the usual length and patterns of the usual kind."""
    return len(keys) + (sum(map(len, keys)) * pattern.programsize >> 12)


@lru_cache(maxsize=64)
def compile_pattern(pattern: bytes) -> Pattern:
    """Compile, or raise `BadPattern` with the position of the error."""
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
    """RE2 reports the offending piece after the last colon, not its position."""
    piece = reason.rpartition(": ")[2].encode("latin-1", "replace")
    found = pattern.rfind(piece) if piece else -1
    return found if found >= 0 else len(pattern)
