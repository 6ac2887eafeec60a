"""Detect a dead server: ping it when calls are unfinished and nothing arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# etcd closes connections that ping more often than every 5 s, or without an unfinished call.
PING_AFTER_S, PING_ANSWER_S = 10.0, 3.0
LAST_CHECK_S = 0.05


class Liveness:
    """The connection sets `last_seen_s` when it receives. After a silence it pings; without an answer it gives up."""

    __slots__ = ("_give_up", "_loop", "_ping", "_timer", "_under_way", "last_seen_s")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        under_way: Callable[[], bool],
        ping: Callable[[], None],
        give_up: Callable[[str], None],
    ) -> None:
        self.last_seen_s = 0.0
        self._loop = loop
        self._under_way = under_way
        self._ping = ping
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None

    def check(self) -> None:
        """Start, or check again."""
        silent_s = self._loop.time() - self.last_seen_s
        if silent_s < PING_AFTER_S or not self._under_way():
            self._timer = self._loop.call_later(max(PING_AFTER_S - silent_s, 1.0), self.check)
            return
        self._ping()
        self._timer = self._loop.call_later(PING_ANSWER_S, self._check_once_more, self.last_seen_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check_once_more(self, last_seen_s: float) -> None:
        # If this process was stalled, the answer has arrived but was not read yet.
        self._timer = self._loop.call_later(LAST_CHECK_S, self._judge, last_seen_s)

    def _judge(self, last_seen_s: float) -> None:
        if self.last_seen_s == last_seen_s:
            self._give_up("the server did not answer a ping")
        else:
            self.check()
