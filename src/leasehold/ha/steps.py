"""Long work in steps: a generator that yields wherever the event loop may run something else first.

A batch can hold thousands of records, and one record can remove thousands of objects. A node that applies them must
still send its heartbeats, renew its leases and answer status requests.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]


def run_to_end(steps: Steps[T]) -> T:
    """Run all steps without a pause and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
