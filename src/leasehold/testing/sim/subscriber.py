"""A subscriber to the events: its picture of the pool must equal the pool, whatever was lost on the way."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from leasehold.events.follower import PageRequest, Request
from leasehold.events.messages import Message, Reload, Stored, events_of
from leasehold.events.stream import Answer
from leasehold.testing.sim.event_bugs import bend_stream, new_follower
from leasehold.testing.sim.virtual_clock import Violation

if TYPE_CHECKING:
    from leasehold.testing.sim.nodes import Run
    from leasehold.testing.sim.world import World

_LOST = 0.1  # of all messages
_DELIVERED = 0.3  # chance that the next message arrives at an event of the world
_ANSWERED = 0.02  # ... that an answer arrives
_REQUESTS = 0.1  # chance of a request at an event of the world
_REQUESTS_MAX = 2  # under way
_LAST_REQUESTS = 200


class Subscriber:
    """Has its own randomness, and runs between the events of the world: without it the world is the same."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.follower = new_follower(world.bugs)
        self.overflows = 0
        self._chance = random.Random(f"subscriber-{world.seed}")
        self._messages: deque[Message] = deque()  # on the way: two connections, one may be faster than the other
        self._answers: deque[Answer] = deque()

    def sent(self, message: Message) -> None:
        """A node has published a message."""
        for event in events_of(message.payload)[1]:
            if isinstance(event, Stored) and event.put_seq not in self.world.oracle.truth.ended:
                raise Violation("events", f"{event.key!r} put {event.put_seq} was published before it was durable")
            if isinstance(event, Reload) and message.count > 1:
                self.overflows += 1
        if self._chance.random() >= _LOST:
            self._messages.append(message)

    def step(self) -> None:
        """One event of the world has happened."""
        draw = self._chance.random()
        if draw < _DELIVERED:
            self._message_arrives()
        elif draw < _DELIVERED + _ANSWERED:
            self._answer_arrives()
        elif draw > 1 - _REQUESTS and len(self._answers) < _REQUESTS_MAX:
            runs = [node.run for node in self.world.nodes if node.run is not None and not node.paused]
            if runs and (answer := self._ask(self._chance.choice(runs), self.follower.request())) is not None:
                self._answers.append(answer)

    def _message_arrives(self) -> None:
        if self._messages:
            self.follower.received(self._messages.popleft())

    def _answer_arrives(self) -> None:
        if self._answers:
            self.follower.answered(self._answers.popleft())

    def _ask(self, run: Run, request: Request) -> Answer | None:
        """The answer of a node: None if it does not publish."""
        events = run.events
        if not events.epoch:
            return None
        bend_stream(self.world.bugs, events)
        if isinstance(request, PageRequest):
            index = run.machine.index
            return events.page(index.catalog, index.disk, run.changes, request.cursor)
        return events.resume(request.epoch, request.count)

    def final_check(self, serving: Run) -> None:
        """The world is quiet: the picture becomes that of the pool."""
        follower = self.follower
        while self._messages or self._answers:
            self._message_arrives()
            self._answer_arrives()
        for _ in range(_LAST_REQUESTS):
            answer = self._ask(serving, follower.request())
            if answer is not None:
                follower.answered(answer)
            if follower.whole and (follower.epoch, follower.count) == (serving.events.epoch, serving.events.count):
                break
        else:
            raise Violation("events", f"the subscriber is not whole after {_LAST_REQUESTS} requests")
        index = serving.machine.index
        rows = [version.row for version in index.disk.versions() if index.disk.is_readable(version)]
        pool = {(row.tenant, row.key): row.put_seq for row in rows}
        pool |= {(each.tenant, each.key): each.put_seq for each in index.catalog.objects() if each.visible}
        if follower.picture != pool:
            wrong = sorted(set(follower.picture.items()) ^ set(pool.items()))
            raise Violation("events", f"the subscriber and {serving.name} differ in {wrong[:3]}")
        if follower.diverged:
            raise Violation("events", f"the picture was wrong {follower.diverged} times although nothing was missing")
