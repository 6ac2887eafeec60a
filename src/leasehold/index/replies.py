"""Typed replies of the index: what an answer hands out or shows, and which record it waits for.

A reply cannot be made without its record and its kind, so a handler cannot forget either (P1, P3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, TypeVarTuple

from msgspec import Struct

from leasehold.base.codes import Code

if TYPE_CHECKING:
    from leasehold.index.index import Index

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Acknowledged(Struct, frozen=True, gc=False):
    """A command was carried out or refused. The answer waits until record `after` may be acknowledged."""

    code: Code
    after: int


class SpaceHandedOut(Struct, Generic[T], frozen=True, gc=False):
    """Space for a writer (None if the command was refused).

    The answer waits until record `after` is durable in the store, whatever the durability setting (P3).
    """

    code: Code
    value: T | None
    after: int


class View(Struct, Generic[T], frozen=True, gc=False):
    """State that the caller is shown, also by not showing something. The answer waits as `Acknowledged` does (P1)."""

    value: T
    after: int


Reply: TypeAlias = Acknowledged | SpaceHandedOut[Any] | View[Any]
NOTHING_SHOWN = View(None, 0)  # a refusal of the request itself: it depends on no record


def acknowledges(command: Callable[[Index, int, *Ts], tuple[Code, int]]) -> Callable[[Index, int, *Ts], Acknowledged]:
    """A command of the index that answers `(code, after)`, with a typed reply."""

    def execute(index: Index, now_ms: int, *args: *Ts) -> Acknowledged:
        code, after = command(index, now_ms, *args)
        return Acknowledged(code, after)

    return execute


def hands_out(
    command: Callable[[Index, int, *Ts], tuple[Code, T | None, int]],
) -> Callable[[Index, int, *Ts], SpaceHandedOut[T]]:
    """A command of the index that answers `(code, space, after)`, with a typed reply."""

    def execute(index: Index, now_ms: int, *args: *Ts) -> SpaceHandedOut[T]:
        code, space, after = command(index, now_ms, *args)
        return SpaceHandedOut(code, space, after)

    return execute


def shows(
    command: Callable[[Index, int, *Ts], tuple[Code, T, int]],
) -> Callable[[Index, int, *Ts], View[tuple[Code, T]]]:
    """A command of the index that answers `(code, value, after)` and hands out no space, with a typed reply."""

    def execute(index: Index, now_ms: int, *args: *Ts) -> View[tuple[Code, T]]:
        code, value, after = command(index, now_ms, *args)
        return View((code, value), after)

    return execute
