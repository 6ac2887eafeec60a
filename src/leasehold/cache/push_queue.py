"""What waits to be sent to clients, and when it leaves: as few frames as possible, for it is the waking that costs.

- answers and outcomes leave at the end of the turn of the loop, all of one client's together;
- callbacks leave in rounds (see `rounds`);
- refills, for which nobody waits, ride with the next thing that is said to their client, at the latest after a moment.
"""

from __future__ import annotations

import asyncio
from typing import Final

from leasehold.base import limits
from leasehold.cache.callback_rounds import Rounds
from leasehold.cache.model import Changed, Drop, FromAuthority, Item, Refill, Version
from leasehold.cache.wire_functions import pushed
from leasehold.runtime.clock import BootClock
from leasehold.wire.answers import Released
from leasehold.wire.connection import Connection

_REFILL_HOLD_S: Final = 0.005
_ROUND_HOLD_MS: Final = 10


class Outbox:
    """What waits to be sent to one client."""

    def __init__(self, pusher: Pusher, connection: Connection) -> None:
        self._pusher = pusher
        self._connection = connection
        self._messages: list[FromAuthority] = []
        self._drops: list[tuple[bytes, Version]] = []
        self._refills: list[tuple[int, Item]] = []
        self._hold = pusher.rounds.hold  # for every holder of every write

    def take(self, message: FromAuthority) -> None:
        if type(message) is Drop and message.keys:
            self.call_back(message)
            return
        if not self._messages:
            self._pusher.push_now(self)
        self._messages.append(message)

    def call_back(self, drop: Drop) -> None:
        self._drops += drop.keys
        self._hold(self, drop)
        if not self._pusher.looking:
            self._pusher.look_soon()

    def refill(self, seq: int, item: Item) -> None:
        if not self._refills:
            self._pusher.push_soon(self)
        self._refills.append((seq, item))

    def taken(self) -> list[FromAuthority]:
        """All but the callbacks, which wait for their round."""
        messages, self._messages = self._messages, []
        if len(messages) > 1:
            messages = coalesced(messages)
        refills, self._refills = self._refills, []
        for start in range(0, len(refills), limits.cache_keys_per_ask_max):
            messages.append(Refill(tuple(refills[start : start + limits.cache_keys_per_ask_max])))
        return messages

    def push(self) -> None:
        if (self._messages or self._refills) and not self._connection.closed:
            self._connection.send(Released(pushed(self.taken())))

    def push_callbacks(self) -> None:
        """Its part in a round: in front, for a writer waits."""
        drops, self._drops = self._drops, []
        if not self._connection.closed:
            self._connection.send(Released(pushed([Drop(tuple(drops)), *self.taken()])))


def coalesced(messages: list[FromAuthority]) -> list[FromAuthority]:
    """The same with all notices in one."""
    notices = [message for message in messages if type(message) is Changed]
    if len(notices) < 2:
        return messages
    changes = {pair[0]: pair for notice in notices for pair in notice.changes}
    merged = Changed(tuple(changes.values()), any(notice.missed for notice in notices))
    return [merged, *(message for message in messages if type(message) is not Changed)]


class Pusher:
    """When the outboxes are emptied. After something has changed in `rounds`, `look_soon`, unless it is `looking`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = BootClock()
        self._due: list[Outbox] = []
        self._held: list[Outbox] = []
        self.rounds: Rounds[Outbox] = Rounds(_ROUND_HOLD_MS)
        self.looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def push_now(self, outbox: Outbox) -> None:
        """At the end of this turn of the loop."""
        if not self._due:
            self._loop.call_soon(self._push_due)
        self._due.append(outbox)

    def push_soon(self, outbox: Outbox) -> None:
        """With the next thing that is pushed to this client, at the latest after a moment."""
        if not self._held:
            self._loop.call_later(_REFILL_HOLD_S, self._push_held)
        self._held.append(outbox)

    def acknowledged(self, outbox: Outbox) -> None:
        self.rounds.acknowledged(self._clock.now_ms(), outbox)
        if self.rounds.waiting and not self.looking:
            self.look_soon()

    def gone(self, outbox: Outbox) -> None:
        self.rounds.gone(self._clock.now_ms(), outbox)
        if self.rounds.waiting and not self.looking:
            self.look_soon()

    def _push_due(self) -> None:
        due, self._due = self._due, []
        for outbox in due:
            outbox.push()

    def _push_held(self) -> None:
        held, self._held = self._held, []
        for outbox in held:
            outbox.push()

    def look_soon(self) -> None:
        """Whether a round may begin is seen at the end of the turn, which may bring more."""
        self.looking = True
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        self.looking = False
        now_ms = self._clock.now_ms()
        due_ms = self.rounds.due_ms(now_ms)
        if due_ms is not None and due_ms <= now_ms:
            for outbox in self.rounds.begin(now_ms):
                outbox.push_callbacks()
        elif due_ms is not None and (self._timer is None or due_ms < self._timer_ms):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = due_ms
            self._timer = self._loop.call_later((due_ms - now_ms) / 1_000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._look()
