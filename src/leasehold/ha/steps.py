"""Long work in pieces: a generator that yields wherever something else may be done first.

A batch can hold thousands of records, and one record can take thousands of objects away. Whoever applies that must not
keep its loop from beating, from keeping leases alive and from answering those who ask how it is.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Pieces: TypeAlias = Generator[None, None, T]


def immediately(pieces: Pieces[T]) -> T:
    """All of it without a pause; its result."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: T = end.value
            return result
