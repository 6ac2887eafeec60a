"""Is the server still there? Asked where calls are under way and nothing comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# etcd ends connections that ping more often than every 5 s, and those that ping without a call.
PING_AFTER_S, PING_ANSWER_S = 10.0, 3.0
LAST_LOOK_S = 0.05


class SignsOfLife:
    """`heard_s` is set by whoever hears of the server. Without a sign, `ping`; and if there is none then, `give_up`."""

    __slots__ = ("_give_up", "_loop", "_ping", "_timer", "_under_way", "heard_s")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        under_way: Callable[[], bool],
        ping: Callable[[], None],
        give_up: Callable[[str], None],
    ) -> None:
        self.heard_s = 0.0
        self._loop = loop
        self._under_way = under_way
        self._ping = ping
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Begin, or begin again."""
        silent_s = self._loop.time() - self.heard_s
        if silent_s < PING_AFTER_S or not self._under_way():
            self._timer = self._loop.call_later(max(PING_AFTER_S - silent_s, 1.0), self.look)
            return
        self._ping()
        self._timer = self._loop.call_later(PING_ANSWER_S, self._look_once_more, self.heard_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_once_more(self, heard_s: float) -> None:
        # Where this process stood still, the sign is there and was not read yet.
        self._timer = self._loop.call_later(LAST_LOOK_S, self._judge, heard_s)

    def _judge(self, heard_s: float) -> None:
        if self.heard_s == heard_s:
            self._give_up("the server gave no sign of life")
        else:
            self.look()
