"""Noticing that a peer has fallen silent: its host is gone, or the way to it, and no reset will ever come.

TCP alone takes a quarter of an hour for that, and a call only knows that its own time has passed: the next one would
wait on the same dead connection. So while somebody waits and nothing is heard, the peer is asked something that every
server answers at once, even if only by "no such function"; if nothing comes then either, the connection is ended, and
whoever may repeat does so elsewhere. A call that is held for a good reason (its record is not durable yet) is not
disturbed: the peer does answer. Nor is a connection that has never been answered: a guardian may be holding it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from leasehold.wire.channel import Channel

SILENCE_S: Final = 1.0  # then the peer is asked, and after as much again given up
_LATE_S: Final = 0.5  # we ourselves were not there: that says nothing about the peer


class Vigil:
    """Watches one channel at a time, and only while calls wait on it. `probe` is the function to ask."""

    def __init__(self, probe: int) -> None:
        self._probe = probe
        self._channel: Channel | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._asked = False

    def keep(self, channel: Channel) -> None:
        """A call is about to wait on this channel."""
        if self._channel is not channel or self._timer is None:
            if self._timer is not None:
                self._timer.cancel()
            self._channel = channel
            channel.heard = self._asked = False
            self._arm(channel)

    def _arm(self, channel: Channel) -> None:
        self._due_s = channel.loop.time() + SILENCE_S
        self._timer = channel.loop.call_at(self._due_s, self._look, channel)

    def _look(self, channel: Channel) -> None:
        self._timer = None
        if channel.closed or not channel.waits:
            return
        if channel.heard or not channel.ever_heard or channel.loop.time() - self._due_s > _LATE_S:
            channel.heard = self._asked = False
        elif not self._asked:
            self._asked = True
            channel.probe(self._probe)
        else:
            channel.close("it has fallen silent")
            return
        self._arm(channel)
