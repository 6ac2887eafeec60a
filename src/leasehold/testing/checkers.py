"""A linearizability checker (Wing and Gong's search with Lowe's cache of visited states).

A history is a list of operations with the real times of call and return. It is linearizable if every operation can be
assigned one moment between its call and its return, such that a single copy of the object, stepped in that order, gives
the observed answers. An operation without a return may have happened at any time after its call, or never.

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
    """One call: `what` is its kind, with `argument` and `result`.

    `returned` is None for a call whose outcome is unknown. `hint` is the order that the system itself claims.
    """

    called: int
    returned: int | None
    what: str
    argument: Any = None
    result: Any = None
    process: str = ""
    hint: float = 0.0


class Verdict(Struct, frozen=True):
    """`stuck` is empty for a linearizable history; else the operations that could not be placed at the furthest point.

    A verdict that is not `proven` comes from a search that was given up.
    """

    linearizable: bool
    stuck: tuple[Operation, ...] = ()
    placed: int = 0
    proven: bool = True

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
    """The list's head. At equal times calls come before returns: that is the weaker requirement."""
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


class _Choice:
    """A point of the search: its state, the candidates for the next operation, and the operation that led to it."""

    __slots__ = ("came_by", "open", "state")

    def __init__(self, state: Any, open_: list[_Entry], came_by: _Entry | None) -> None:
        self.state = state
        self.open = open_
        self.came_by = came_by


def check(
    history: Sequence[Operation],
    start: State,
    step: Callable[[State, Operation], State | None],
    *,
    steps_max: int = 200_000,
) -> Verdict:
    """Search for an order. `step` returns the state after an operation, or None if its answer is impossible.

    Two rules keep the search short: a `read` that fits is placed immediately (that is always safe), and among several
    candidates the one with the lowest `hint` is tried first, so correct hints need no second try. After `steps_max` it
    gives up with an unproven verdict.
    """
    answered = sum(operation.returned is not None for operation in history)
    head = _linked(history)
    bits = placed = steps = 0
    best = -1
    stuck: tuple[Operation, ...] = ()
    tried: set[tuple[int, State]] = set()
    path = [_Choice(start, _candidates(head, history, start, step), None)]
    while placed < answered:
        steps += 1
        here = path[-1]
        if here.open and steps <= steps_max:
            entry = here.open.pop()
            after = step(here.state, history[entry.index])
            if after is None:
                continue
            key = (bits | 1 << entry.index, after)
            if key in tried:
                continue
            tried.add(key)
            entry.lift()
            bits, placed = key[0], placed + (history[entry.index].returned is not None)
            path.append(_Choice(after, _candidates(head, history, after, step), entry))
            continue
        if placed > best:
            best, stuck = placed, _window(head, history)
        if here.came_by is None or steps > steps_max:
            return Verdict(False, stuck, best, proven=steps <= steps_max)
        path.pop()
        bits &= ~(1 << here.came_by.index)
        placed -= history[here.came_by.index].returned is not None
        here.came_by.unlift()
    return Verdict(True, placed=placed)


def _candidates(
    head: _Entry, history: Sequence[Operation], state: State, step: Callable[[State, Operation], State | None]
) -> list[_Entry]:
    """The operations that may be placed next, best last: those called before the first return."""
    found: list[_Entry] = []
    entry = head.next
    while entry is not None and entry.match is not None:
        operation = history[entry.index]
        after = step(state, operation)
        if after is not None:
            if operation.what == "read":
                return [entry]
            found.append(entry)
        entry = entry.next
    found.sort(key=lambda entry: history[entry.index].hint, reverse=True)
    return found


def _window(head: _Entry, history: Sequence[Operation]) -> tuple[Operation, ...]:
    """The operations that the search could not place next: calls up to the first return."""
    found: list[Operation] = []
    entry = head.next
    while entry is not None and entry.match is not None and len(found) < 12:
        found.append(history[entry.index])
        entry = entry.next
    return tuple(found)


def by_key(history: Iterable[tuple[Key, Operation]]) -> dict[Key, list[Operation]]:
    """Split a history of many objects into one list per object, in order of call."""
    parts: dict[Key, list[Operation]] = defaultdict(list)
    for key, operation in history:
        parts[key].append(operation)
    for part in parts.values():
        part.sort(key=lambda operation: operation.called)
    return dict(parts)


Register = tuple[Hashable]


def register_step(state: Register, operation: Operation) -> Register | None:
    """A register: `read` -> result, `write` argument, `cas` (expected, new) -> whether it succeeded.

    A `cas` that failed saw another value than `expected`.
    """
    if operation.what == "read":
        return state if state[0] == operation.result else None
    if operation.what == "write":
        return (operation.argument,)
    expected, new = operation.argument
    if operation.returned is None or operation.result:
        return (new,) if state[0] == expected else None
    return state if state[0] != expected else None


def check_register(history: Sequence[Operation], start: Hashable = None, *, steps_max: int = 200_000) -> Verdict:
    """`check` for one register whose writes have different values (None, a deletion, may be written again).

    First it looks for two values that contradict each other, which finds most stale reads immediately. Writes of
    unknown outcome whose value no operation saw are left out. That keeps the search small and changes no verdict,
    unless a `cas` failed, which may have seen one of them: then they stay.
    """
    contradiction = _contradiction(history)
    if contradiction:
        return Verdict(False, contradiction)
    seen = {operation.result for operation in history if operation.what == "read"}
    seen |= {operation.argument[0] for operation in history if operation.what == "cas"}
    refused = any(operation.what == "cas" and operation.result is False for operation in history)
    kept = [
        operation
        for operation in history
        if operation.returned is not None
        or refused
        or (operation.what == "write" and operation.argument in seen)
        or (operation.what == "cas" and operation.argument[1] in seen)
    ]
    return check(kept, (start,), register_step, steps_max=steps_max)


class _Zone:
    """When a value was certainly present: from the first return to the last call of the operations on it."""

    __slots__ = ("first", "first_return", "last", "last_call")

    def __init__(self, operation: Operation) -> None:
        self.first = self.last = operation
        self.first_return = float("inf")
        self.last_call = float("-inf")

    def take(self, operation: Operation) -> None:
        if operation.returned is not None and operation.returned < self.first_return:
            self.first, self.first_return = operation, float(operation.returned)
        if operation.called > self.last_call:
            self.last, self.last_call = operation, float(operation.called)


def _contradiction(history: Sequence[Operation]) -> tuple[Operation, ...]:
    """Operations of two values that must have been present at the same time (after Gibbons and Korach), if any."""
    zones: dict[Hashable, _Zone] = {}
    for operation in history:
        value = _value_of(operation)
        if value is not None:
            zones.setdefault(value, _Zone(operation)).take(operation)
    present = [zone for zone in zones.values() if zone.first_return < zone.last_call]
    for zone in present:
        for other in zones.values():
            if other is zone:
                continue
            low, high = sorted((other.first_return, other.last_call))
            forward = other.first_return < other.last_call
            overlaps = max(low, zone.first_return) < min(high, zone.last_call)
            inside = zone.first_return < low and high < zone.last_call
            if overlaps if forward else inside:
                return (zone.first, zone.last, other.first, other.last)
    return ()


def _value_of(operation: Operation) -> Hashable | None:
    """The value that was certainly present at some moment of the operation, if it is written only once."""
    if operation.what == "read":
        value: Hashable | None = operation.result
        return value
    if operation.what == "write":
        argument: Hashable | None = operation.argument
        return argument if operation.returned is not None else None
    if operation.returned is None or not operation.result:
        return None
    new: Hashable | None = operation.argument[1]
    return new
