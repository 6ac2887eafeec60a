"""Counting what passes through: has every request that went one way been answered the other way? Pure.

For somebody who copies bytes between a client and a server and reads nothing of them but where a frame ends.
"""

from __future__ import annotations

import struct
from typing import Final

from leasehold.wire.frame import ANSWER, MAGIC, REQUEST_HEAD_BYTES, RESPONSE_HEAD_BYTES

_LENGTHS: Final = struct.Struct("<II")  # of body and attachment: the last of either head
_MAGIC_AT: Final = 0
_KIND_AT: Final = 3


class _Frames:
    """Cuts one direction's bytes into frames, without keeping any but an incomplete head."""

    __slots__ = ("_head", "_head_bytes", "_left", "count", "strange")

    def __init__(self, head_bytes: int) -> None:
        self.count = 0
        self.strange = False  # not our framing, or a message that nobody asked for: nothing can be said any more
        self._head_bytes = head_bytes
        self._head = b""
        self._left = 0  # bytes until the frame ends whose head was seen

    @property
    def between(self) -> bool:
        """The bytes so far end where a frame ends."""
        return not (self._left or self._head or self.strange)

    def feed(self, data: bytes) -> None:
        at, size = 0, len(data)
        while at < size and not self.strange:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                self.count += not self._left
                continue
            wanted = self._head_bytes - len(self._head)
            self._head += data[at : at + wanted]
            at += wanted
            if len(self._head) == self._head_bytes:
                self._open(self._head)
                self._head = b""

    def _open(self, head: bytes) -> None:
        self.strange = head[_MAGIC_AT] != MAGIC or (
            self._head_bytes == RESPONSE_HEAD_BYTES and head[_KIND_AT] != ANSWER
        )
        self._left = sum(_LENGTHS.unpack_from(head, self._head_bytes - _LENGTHS.size))
        self.count += not self._left


class Tally:
    """Both directions of one conversation, from a point on at which nothing is open.

    Tell it of requests before they are passed on, and of answers when they have been.
    """

    __slots__ = ("_answers", "_requests", "passed_bytes")

    def __init__(self) -> None:
        self.passed_bytes = 0  # of both directions
        self._requests = _Frames(REQUEST_HEAD_BYTES)
        self._answers = _Frames(RESPONSE_HEAD_BYTES)

    @property
    def nothing_open(self) -> bool:
        """Everything that was asked has been answered, and neither side is in the middle of a frame."""
        asked, answered = self._requests, self._answers
        return asked.between and answered.between and asked.count == answered.count

    @property
    def broken(self) -> bool:
        """What was asked is not our framing: the server says so, by its answers and by ending."""
        return self._requests.strange

    @property
    def all_answered(self) -> bool:
        """As `nothing_open`, for a client that asks no more: half a request will never be whole, nor answered."""
        return self._answers.between and self._requests.count == self._answers.count

    def asked(self, data: bytes) -> None:
        self.passed_bytes += len(data)
        self._requests.feed(data)

    def answered(self, data: bytes) -> None:
        self.passed_bytes += len(data)
        self._answers.feed(data)
