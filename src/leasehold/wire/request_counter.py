"""Count requests and answers in copied bytes: has every request been answered?

For a proxy that copies bytes between a client and a server, and only looks for the ends of frames.
"""

from __future__ import annotations

import struct
from typing import Final

from leasehold.wire.frame import ANSWER, MAGIC, REQUEST_HEAD_BYTES, RESPONSE_HEAD_BYTES

_LENGTHS: Final = struct.Struct("<II")  # body and attachment: the last fields of both heads
_MAGIC_AT: Final = 0
_KIND_AT: Final = 3


class _Frames:
    """Splits the bytes of one direction into frames; it keeps only an incomplete head."""

    __slots__ = ("_head", "_head_bytes", "_left", "count", "malformed")

    def __init__(self, head_bytes: int) -> None:
        self.count = 0
        self.malformed = False  # not our framing, or not an answer: the counts are useless from now on
        self._head_bytes = head_bytes
        self._head = b""
        self._left = 0  # bytes until the end of the current frame

    @property
    def between(self) -> bool:
        """Whether the bytes so far end at the end of a frame."""
        return not (self._left or self._head or self.malformed)

    def feed(self, data: bytes) -> None:
        at, size = 0, len(data)
        while at < size and not self.malformed:
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
        self.malformed = head[_MAGIC_AT] != MAGIC or (
            self._head_bytes == RESPONSE_HEAD_BYTES and head[_KIND_AT] != ANSWER
        )
        self._left = sum(_LENGTHS.unpack_from(head, self._head_bytes - _LENGTHS.size))
        self.count += not self._left


class RequestCounter:
    """Both directions of one connection, starting when no request is open.

    Add requests before they are passed on, and answers after they were.
    """

    __slots__ = ("_answers", "_requests", "passed_bytes")

    def __init__(self) -> None:
        self.passed_bytes = 0  # of both directions
        self._requests = _Frames(REQUEST_HEAD_BYTES)
        self._answers = _Frames(RESPONSE_HEAD_BYTES)

    @property
    def nothing_open(self) -> bool:
        """Every request was answered, and neither direction is in the middle of a frame."""
        requests, answers = self._requests, self._answers
        return requests.between and answers.between and requests.count == answers.count

    @property
    def between_requests(self) -> bool:
        """Whether the requests so far end at the end of a request."""
        return self._requests.between

    @property
    def malformed(self) -> bool:
        """The requests are not in our framing: the server will answer with an error and close."""
        return self._requests.malformed

    @property
    def all_answered(self) -> bool:
        """Like `nothing_open`, for a client that has shut down: a partial request is never completed or answered."""
        return self._answers.between and self._requests.count == self._answers.count

    def add_requests(self, data: bytes) -> None:
        self.passed_bytes += len(data)
        self._requests.feed(data)

    def add_answers(self, data: bytes) -> None:
        self.passed_bytes += len(data)
        self._answers.feed(data)
