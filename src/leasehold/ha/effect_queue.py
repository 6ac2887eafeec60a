"""The machine's effects, in order, and the activities that wait for answers of the store. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from leasehold.ha.effects import GrantLease, NodeEffect, Say, StoreRequest
from leasehold.ha.events import StoreAnswered
from leasehold.ha.steps import Steps
from leasehold.mvcc.model import DeleteRange, Put, Range, Txn

Handler: TypeAlias = Callable[[int, StoreAnswered], Steps[None] | None]


class Activity:
    """A task of the node. Once it is closed, answers to its requests no longer reach it."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open = True

    def close(self) -> None:
        self.open = False


class EffectQueue:
    """Collects effects while one event is handled; remembers which activity sent each open request."""

    __slots__ = ("_next", "_waiting", "now_ms", "out", "timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.now_ms = 0  # of the present event, or of the present step of long work
        self.out: list[NodeEffect] = []
        self._next = 0
        self._waiting: dict[int, tuple[Activity, Handler]] = {}

    def begin_event(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def number(self) -> int:
        """A new number, for requests and watches."""
        self._next += 1
        return self._next

    def do(self, effect: NodeEffect) -> None:
        self.out.append(effect)

    def say(self, sentence: str, *, serious: bool = False) -> None:
        self.out.append(Say(sentence, serious))

    def ask(self, owner: Activity, op: Range | Put | DeleteRange | Txn, then: Handler) -> int:
        """Send `op` to the store; `then` receives the answer unless `owner` is closed. Returns the request's number."""
        request = self.number()
        self._waiting[request] = (owner, then)
        self.out.append(StoreRequest(request, op, self.timeout_ms))
        return request

    def grant(self, owner: Activity, ttl_s: int, then: Handler) -> None:
        request = self.number()
        self._waiting[request] = (owner, then)
        self.out.append(GrantLease(request, ttl_s, self.timeout_ms))

    def answered(self, now_ms: int, event: StoreAnswered) -> Steps[None] | None:
        """Pass an answer to the activity that waits for it; drop repeated and late ones. Returns the work left."""
        owner, then = self._waiting.pop(event.request, (None, None))
        if owner is not None and then is not None and owner.open:
            return then(now_ms, event)
        return None

    def take(self) -> list[NodeEffect]:
        out, self.out = self.out, []
        return out
