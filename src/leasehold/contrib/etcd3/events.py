"""Events of a watch. `event.value`, `event.mod_revision`, ... are those of its key; `prev_...` those before it."""

from __future__ import annotations

from typing import Any

from leasehold.mvcc.model import Event as StoreEvent
from leasehold.mvcc.model import EventType, KeyValue


class Event:
    """A change of one key."""

    def __init__(self, event: StoreEvent) -> None:
        self.key = event.kv.key
        self._event = event

    def __getattr__(self, name: str) -> Any:
        if name.startswith("prev_"):
            return getattr(self._event.prev_kv or KeyValue(b""), name[5:])
        return getattr(self._event.kv, name)

    def __str__(self) -> str:
        return f"{type(self)} key={self.key!r} value={self.value}"


class PutEvent(Event):
    """The key was written."""


class DeleteEvent(Event):
    """The key was deleted, or its lease expired."""


def new_event(event: StoreEvent) -> Event:
    """Wrap an event of the store."""
    return PutEvent(event) if event.type is EventType.PUT else DeleteEvent(event)
