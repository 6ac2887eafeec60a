"""Deciding records on the primary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold.base.invariants import ensure
from leasehold.index.features import LEVEL_OF, Features
from leasehold.index.log import Log
from leasehold.index.records import Record

Handlers = dict[type[Any], Callable[[int, Any], None]]


class Decisions:
    """The way of every decision of a primary: numbered, queued for the journal, applied by its handler.

    No part refers to this object, so there are no reference cycles between the parts: a node freezes its long-lived
    objects, and frozen cycles are never collected.
    """

    __slots__ = ("_features", "_handlers", "_log")

    def __init__(self, log: Log, features: Features, handlers: Handlers) -> None:
        self._log = log
        self._features = features
        self._handlers = handlers

    def emit(self, record: Record) -> int:
        """Decide a record: apply it by the same code as every other node does. Returns its number."""
        if type(record) in LEVEL_OF:
            ensure(self._features.allow(type(record)), "P7 records are written at their feature level", record)
        n = self._log.append(record)
        self._handlers[type(record)](n, record)
        return n
