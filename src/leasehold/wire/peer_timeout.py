"""Detect a peer that no longer answers: its host or the network failed, and no reset will arrive.

TCP alone needs about 15 minutes for that. A call only knows that its own timeout has passed, and the next call would
wait on the same dead connection. So while calls wait and nothing is received, the client sends a probe, a function
that every server answers immediately (if only with "no such function"). If that is not answered either, the
connection is closed, and calls that may be repeated are sent elsewhere. A call whose answer is withheld (its record
is not durable yet) is not affected: the peer answers the probe. A connection without any answer so far is not closed
here, because a guardian may be holding it: `unanswered` is called instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from leasehold.wire.channel import Channel

SILENCE_S: Final = 1.0  # then a probe is sent, and after the same time again the connection is closed
_LATE_S: Final = 0.5  # our own loop was late: that proves nothing about the peer


class PeerTimeout:
    """Watches one channel at a time, and only while calls wait on it. `probe` is the function to call.

    `unanswered(channel)` is called once a second while nothing at all was received, not even an answer to the probe.
    """

    def __init__(self, probe: int, unanswered: Callable[[Channel], None]) -> None:
        self._probe = probe
        self._unanswered = unanswered
        self._channel: Channel | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._probed = False

    def watch(self, channel: Channel) -> None:
        """A call is about to wait on this channel."""
        if self._channel is not channel or self._timer is None:
            if self._timer is not None:
                self._timer.cancel()
            self._channel = channel
            channel.take_received()
            self._probed = False
            self._arm(channel)

    def _arm(self, channel: Channel) -> None:
        self._due_s = channel.loop.time() + SILENCE_S
        self._timer = channel.loop.call_at(self._due_s, self._check, channel)

    def _check(self, channel: Channel) -> None:
        self._timer = None
        if channel.closed or not channel.waits:
            return
        if channel.take_received() or channel.loop.time() - self._due_s > _LATE_S:
            self._probed = False
        elif not self._probed:
            self._probed = True
            channel.probe(self._probe)
        elif not channel.ever_received:
            self._unanswered(channel)
        else:
            channel.close("the peer no longer answers")
            return
        self._arm(channel)
