"""Shared by all services: run a call on the store, and answer when it is settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from leasehold.mvcc.store import Store
from leasehold.store.engine import Engine
from leasehold.store.server.http2.streams import Handler, Message

Methods = dict[str, Handler]  # of one service, by name
T = TypeVar("T")


def run(engine: Engine, call: Callable[[Store, int], T]) -> T:
    """Run one call on the store. The answer may be sent when the engine has settled."""
    with engine.lock:
        result = call(engine.store, engine.enter())
        engine.leave()
    return result


def direct(engine: Engine, kind: Any, behaviour: Callable[[Message], Message]) -> Handler:
    """A method that is answered as soon as the state that it saw or made is durable."""
    return Handler(kind, behaviour, engine.when_settled)
