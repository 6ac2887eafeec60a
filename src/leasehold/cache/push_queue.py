"""Messages that wait to be sent to clients, and when they are sent: in as few frames as possible, because waking a
client is the expensive part.

- Answers and outcomes leave at the end of the turn of the loop, all for one client together.
- Callbacks leave in rounds (see `callback_rounds`).
- Refills, for which no client waits, leave with the next frame to their client, at most 5 ms later.
"""

from __future__ import annotations

import asyncio
from typing import Final

from leasehold.base import limits
from leasehold.cache.callback_rounds import CallbackRounds
from leasehold.cache.model import Changed, Drop, FromAuthority, Item, Refill, Version
from leasehold.cache.wire_functions import pushed
from leasehold.runtime.clock import BootClock
from leasehold.wire.answers import Released
from leasehold.wire.connection import Connection

_REFILL_DELAY_S: Final = 0.005
_ROUND_DELAY_MS: Final = 10


class PushQueue:
    """The messages for one client."""

    def __init__(self, scheduler: PushScheduler, connection: Connection) -> None:
        self._scheduler = scheduler
        self._connection = connection
        self._messages: list[FromAuthority] = []
        self._drops: list[tuple[bytes, Version]] = []
        self._refills: list[tuple[int, Item]] = []
        self._add_callback = scheduler.rounds.add  # called for every holder of every write

    def take(self, message: FromAuthority) -> None:
        if type(message) is Drop and message.keys:
            self.call_back(message)
            return
        if not self._messages:
            self._scheduler.push_now(self)
        self._messages.append(message)

    def call_back(self, drop: Drop) -> None:
        self._drops += drop.keys
        self._add_callback(self, drop)
        if not self._scheduler.round_check_scheduled:
            self._scheduler.check_round_soon()

    def refill(self, seq: int, item: Item) -> None:
        if not self._refills:
            self._scheduler.push_soon(self)
        self._refills.append((seq, item))

    def taken(self) -> list[FromAuthority]:
        """Remove and return all messages except callbacks, which wait for their round."""
        messages, self._messages = self._messages, []
        if len(messages) > 1:
            messages = coalesced(messages)
        refills, self._refills = self._refills, []
        for start in range(0, len(refills), limits.cache_keys_per_ask_max):
            messages.append(Refill(tuple(refills[start : start + limits.cache_keys_per_ask_max])))
        return messages

    def push(self) -> None:
        if (self._messages or self._refills) and not self._connection.closed:
            self._connection.sender.send(Released(pushed(self.taken())))

    def push_callbacks(self) -> None:
        """Send the callbacks of a round. They go first, because a writer waits for them."""
        drops, self._drops = self._drops, []
        if not self._connection.closed:
            self._connection.sender.send(Released(pushed([Drop(tuple(drops)), *self.taken()])))


def coalesced(messages: list[FromAuthority]) -> list[FromAuthority]:
    """The same messages with all change notifications merged into one."""
    notices = [message for message in messages if type(message) is Changed]
    if len(notices) < 2:
        return messages
    changes = {pair[0]: pair for notice in notices for pair in notice.changes}
    merged = Changed(tuple(changes.values()), any(notice.missed for notice in notices))
    return [merged, *(message for message in messages if type(message) is not Changed)]


class PushScheduler:
    """When the queues are emptied. After a change to `rounds`, call `check_round_soon` unless it is scheduled."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = BootClock()
        self._due: list[PushQueue] = []
        self._due_later: list[PushQueue] = []
        self.rounds: CallbackRounds[PushQueue] = CallbackRounds(_ROUND_DELAY_MS)
        self.round_check_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def push_now(self, queue: PushQueue) -> None:
        """Send at the end of this turn of the loop."""
        if not self._due:
            self._loop.call_soon(self._push_due)
        self._due.append(queue)

    def push_soon(self, queue: PushQueue) -> None:
        """Send with the next frame to this client, or after `_REFILL_DELAY_S`."""
        if not self._due_later:
            self._loop.call_later(_REFILL_DELAY_S, self._push_due_later)
        self._due_later.append(queue)

    def acknowledged(self, queue: PushQueue) -> None:
        self.rounds.acknowledged(self._clock.now_ms(), queue)
        if self.rounds.queued and not self.round_check_scheduled:
            self.check_round_soon()

    def remove(self, queue: PushQueue) -> None:
        """The client has disconnected."""
        self.rounds.remove(self._clock.now_ms(), queue)
        if self.rounds.queued and not self.round_check_scheduled:
            self.check_round_soon()

    def _push_due(self) -> None:
        due, self._due = self._due, []
        for queue in due:
            queue.push()

    def _push_due_later(self) -> None:
        due, self._due_later = self._due_later, []
        for queue in due:
            queue.push()

    def check_round_soon(self) -> None:
        """At the end of the turn, which may bring more callbacks, see whether a round may begin."""
        self.round_check_scheduled = True
        self._loop.call_soon(self._check_round)

    def _check_round(self) -> None:
        self.round_check_scheduled = False
        now_ms = self._clock.now_ms()
        due_ms = self.rounds.due_ms(now_ms)
        if due_ms is not None and due_ms <= now_ms:
            for queue in self.rounds.begin(now_ms):
                queue.push_callbacks()
        elif due_ms is not None and (self._timer is None or due_ms < self._timer_ms):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = due_ms
            self._timer = self._loop.call_later((due_ms - now_ms) / 1_000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._check_round()
