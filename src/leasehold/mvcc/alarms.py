"""Alarms that a client has activated. They stay until a client deactivates them, over restarts too."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from msgspec import Struct

from leasehold.mvcc.errors import CorruptCluster, NoSpace

ALARMS_MAX = 1_000  # a client chooses the member, so it could activate any number


class AlarmKind(IntEnum):
    NONE = 0
    NOSPACE = 1
    CORRUPT = 2


class Alarm(Struct, frozen=True):
    """`member_id` is the member that the client named."""

    member_id: int
    kind: AlarmKind


class Alarms:
    """The active alarms, in order of activation."""

    __slots__ = ("_active",)

    def __init__(self) -> None:
        self._active: dict[Alarm, None] = {}

    def __iter__(self) -> Iterator[Alarm]:
        return iter(self._active)

    def __contains__(self, alarm: Alarm) -> bool:
        return alarm in self._active

    def __len__(self) -> int:
        return len(self._active)

    def check_intact(self) -> None:
        """Reject a client's change while CORRUPT is active."""
        if self._active and self._any_of(AlarmKind.CORRUPT):
            raise CorruptCluster

    def check_space(self) -> None:
        """Reject a client's put while NOSPACE is active."""
        if self._active and self._any_of(AlarmKind.NOSPACE):
            raise NoSpace

    def _any_of(self, kind: AlarmKind) -> bool:
        return any(alarm.kind is kind for alarm in self._active)

    def switch(self, alarm: Alarm, active: bool) -> None:
        if active:
            self._active[alarm] = None
        else:
            self._active.pop(alarm, None)
