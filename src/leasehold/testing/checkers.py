"""Was there an order? A linearizability checker (Wing and Gong's search, with Lowe's memory of what was tried).

A history is a list of operations with the real times of call and return. It is linearizable if every operation can
be given one moment between its call and its return at which it happened, such that a single copy of the object,
stepped in that order, gives the answers that were seen. An operation without a return may have happened at any
time after its call, or never.

Check objects one by one (`by_key`): a history is linearizable if and only if it is for each object alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

Key = TypeVar("Key", bound=Hashable)
State = TypeVar("State", bound=Hashable)


class Operation(Struct, frozen=True):
    """One call: `what` is the kind, `argument` what went in, `result` what came out.

    `returned` is None for a call whose outcome is unknown.
    """

    called: int
    returned: int | None
    what: str
    argument: Any = None
    result: Any = None
    process: str = ""


class Verdict(Struct, frozen=True):
    """`stuck` is empty for a good history; else what could not be placed, at the furthest point of the search."""

    linearizable: bool
    stuck: tuple[Operation, ...] = ()
    placed: int = 0

    def __bool__(self) -> bool:
        return self.linearizable


class _Entry:
    """A call or a return in a doubly linked list, ordered by time."""

    __slots__ = ("index", "match", "next", "prev")

    def __init__(self, index: int, match: _Entry | None) -> None:
        self.index = index
        self.match = match  # of a call: its return; of a return: None
        self.next: _Entry | None = None
        self.prev: _Entry | None = None

    def lift(self) -> None:
        """Take a call and its return out of the list."""
        for entry in (self, self.match):
            assert entry is not None
            assert entry.prev is not None
            entry.prev.next = entry.next
            if entry.next is not None:
                entry.next.prev = entry.prev

    def unlift(self) -> None:
        for entry in (self.match, self):
            assert entry is not None
            assert entry.prev is not None
            entry.prev.next = entry
            if entry.next is not None:
                entry.next.prev = entry


def _linked(history: Sequence[Operation]) -> _Entry:
    """The list's head. At equal times calls come before returns: that is the weaker demand."""
    entries: list[tuple[float, int, int, _Entry]] = []
    for index, operation in enumerate(history):
        back = _Entry(index, None)
        returned = float("inf") if operation.returned is None else float(operation.returned)
        entries.append((float(operation.called), 0, index, _Entry(index, back)))
        entries.append((returned, 1, index, back))
    entries.sort(key=lambda item: item[:3])
    head = previous = _Entry(-1, None)
    for *_, entry in entries:
        previous.next, entry.prev = entry, previous
        previous = entry
    return head


def check(history: Sequence[Operation], start: State, step: Callable[[State, Operation], State | None]) -> Verdict:
    """Search for an order. `step` gives the state after an operation, or None if it could not answer like that."""
    answered = sum(operation.returned is not None for operation in history)
    head = _linked(history)
    state: State = start
    placed_bits, placed_answered = 0, 0
    tried: set[tuple[int, State]] = {(0, start)}
    path: list[tuple[_Entry, State]] = []
    best = -1
    stuck: tuple[Operation, ...] = ()
    entry = head.next
    while placed_answered < answered:
        current = entry
        if current is not None and current.match is not None:
            operation = history[current.index]
            after = step(state, operation)
            bits = placed_bits | 1 << current.index
            if after is not None and (bits, after) not in tried:
                tried.add((bits, after))
                path.append((current, state))
                state, placed_bits = after, bits
                placed_answered += operation.returned is not None
                current.lift()
                entry = head.next
            else:
                entry = current.next
            continue
        if placed_answered > best:
            best, stuck = placed_answered, _window(head, history)
        if not path:
            return Verdict(False, stuck, best)
        last, state = path.pop()
        placed_bits &= ~(1 << last.index)
        placed_answered -= history[last.index].returned is not None
        last.unlift()
        entry = last.next
    return Verdict(True, placed=placed_answered)


def _window(head: _Entry, history: Sequence[Operation]) -> tuple[Operation, ...]:
    """The operations among which the search found no next one: calls up to the first return."""
    found: list[Operation] = []
    entry = head.next
    while entry is not None and entry.match is not None and len(found) < 12:
        found.append(history[entry.index])
        entry = entry.next
    return tuple(found)


def by_key(history: Iterable[tuple[Key, Operation]]) -> dict[Key, list[Operation]]:
    """A history of many objects, one list for each, in order of call."""
    parts: dict[Key, list[Operation]] = defaultdict(list)
    for key, operation in history:
        parts[key].append(operation)
    for part in parts.values():
        part.sort(key=lambda operation: operation.called)
    return dict(parts)


Register = tuple[Hashable]


def register_step(state: Register, operation: Operation) -> Register | None:
    """A register: `read` -> result, `write` argument, `cas` (expected, new) -> result is whether it was done.

    A `cas` that failed saw something else than `expected`.
    """
    if operation.what == "read":
        return state if state[0] == operation.result else None
    if operation.what == "write":
        return (operation.argument,)
    expected, new = operation.argument
    if operation.returned is None or operation.result:
        return (new,) if state[0] == expected else None
    return state if state[0] != expected else None


def check_register(history: Sequence[Operation], start: Hashable = None) -> Verdict:
    """`check` for one register whose writes all have different values.

    Writes of unknown outcome whose value nobody saw are left out first: that changes no verdict, and keeps the
    search small.
    """
    seen = {operation.result for operation in history if operation.what == "read"}
    seen |= {operation.argument[0] for operation in history if operation.what == "cas"}
    kept = [
        operation
        for operation in history
        if operation.returned is not None
        or (operation.what == "write" and operation.argument in seen)
        or (operation.what == "cas" and operation.argument[1] in seen)
    ]
    return check(kept, (start,), register_step)
