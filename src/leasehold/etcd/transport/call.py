"""One call: its flow-control window, the part of the answer received so far, and the waiting caller."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from leasehold.base.limits import KIB, rpc_answer_bytes_max
from leasehold.etcd.transport.failures import Headers, RpcFailed, status_of
from leasehold.http2.frames import check
from leasehold.mvcc.errors import Code

if TYPE_CHECKING:
    from leasehold.etcd.transport.connection import Connection

WINDOW_BYTES = 4096 * KIB  # granted to a call
UNREAD_BYTES_MAX = 1024 * KIB  # of a stream's answers; then the server has to wait
MESSAGE_BYTES = 64  # memory that even an empty message takes
REOPENED_BYTES = 64 * KIB  # the window is not reopened for less: a frame costs more
# An unhurried call is not cancelled at its deadline. The server gets this much longer: 5 s and two election timeouts.
LATE_ANSWER_S = 10.0
# After a stall the loop finds the deadline and the answer together. This delay lets it read the answer first.
LAST_LOOK_S = 0.001


class Call(ABC):
    """One HTTP/2 stream of a connection. It gets its number when it is sent."""

    __slots__ = ("answering", "connection", "ends", "held", "over", "received", "stream", "window")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.stream = 0
        self.window = 0  # bytes that the server still accepts
        self.held = b""  # the part of the request that did not fit into the window
        self.ends = False  # the request ends with `held`
        self.over = False
        self.answering = False  # the server has begun to answer, so it has seen the call
        self.received = 0  # bytes for which the server's window is not reopened yet

    @abstractmethod
    def took_data(self, data: bytes) -> None:
        """Bytes of the answer have arrived."""

    @abstractmethod
    def ended(self, failure: RpcFailed | None) -> None:
        """The call is finished, and no longer known to the connection."""

    def took_trailers(self, headers: Headers) -> None:
        self.ended(status_of(headers))

    def reopen(self, count: int) -> None:
        """Let the server send `count` more bytes, once that is worth a frame."""
        self.received += count
        if self.received >= REOPENED_BYTES and not self.over:
            self.connection.open_window(self, self.received)
            self.received = 0


class UnaryCall(Call):
    """One request, one answer: `done` is called once, with the answer or the failure, from the connection's loop.

    An `unhurried` call is never cancelled at the server: the caller may stop waiting, but the server can still answer.
    """

    __slots__ = ("_done", "_finished", "_first", "_more", "_size", "_timer", "unhurried")

    def __init__(
        self, connection: Connection, done: Callable[[bytes | RpcFailed], None], *, unhurried: bool = False
    ) -> None:
        super().__init__(connection)
        self.ends = True
        self.unhurried = unhurried
        self._done: Callable[[bytes | RpcFailed], None] | None = done  # None: it was called, or the caller has left
        self._first = b""  # the first part of the answer, usually all of it
        self._more: bytearray | None = None  # the whole answer, if it arrived in parts
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._finished: asyncio.Future[None] | None = None

    def limit(self, timeout_s: float) -> None:
        """Set the deadline."""
        self._timer = self.connection.loop.call_later(timeout_s, self._late)

    def took_data(self, data: bytes) -> None:
        if not self._size:
            self._first = data
        elif self._more is None:
            self._more = bytearray(self._first) + data
        else:
            self._more += data
        self._size += len(data)
        if self._size > rpc_answer_bytes_max:
            self.connection.reset(self)
            self.ended(RpcFailed(Code.INTERNAL, f"an answer of more than {rpc_answer_bytes_max} bytes"))
            return
        self.reopen(len(data))

    def when_over(self) -> asyncio.Future[None]:
        """Done when the server has answered, even if the caller has stopped waiting."""
        if self._finished is None:
            self._finished = self.connection.loop.create_future()
        return self._finished

    def ended(self, failure: RpcFailed | None) -> None:
        self._finish()
        if failure is not None:
            self._report(failure)
            return
        whole = self._first if self._more is None else self._more
        if whole[:1] == b"\0" and int.from_bytes(whole[1:5], "big") == self._size - 5:
            self._report(self._first[5:] if self._more is None else bytes(memoryview(whole)[5:]))
        else:
            self._report(RpcFailed(Code.INTERNAL, "the answer is not one whole message"))

    def abandon(self) -> None:
        """The caller has stopped waiting. Cancel the call, unless it is unhurried and was sent."""
        self._done = None
        if not self.over and not (self.unhurried and self.stream):
            self._cancel()

    def _report(self, answer: bytes | RpcFailed) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(answer)

    def _cancel(self) -> None:
        self._finish()
        self.connection.reset(self)

    def _finish(self) -> None:
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    def _late(self) -> None:
        self._timer = self.connection.loop.call_later(LAST_LOOK_S, self._timed_out)

    def _timed_out(self) -> None:
        was_sent = self.stream != 0
        if self.unhurried and was_sent:
            self._timer = self.connection.loop.call_later(LATE_ANSWER_S, self._cancel)
        else:
            self._cancel()
        why = "no answer in time" if was_sent else "the server accepted no more calls"
        self._report(RpcFailed(Code.DEADLINE_EXCEEDED, why, sent=was_sent))


class StreamCall(Call):
    """A stream of requests and answers. Answers that are not read keep the server from sending more."""

    __slots__ = (
        "_failure",
        "_messages",
        "_owed",
        "_rest",
        "_unread",
        "_waiting",
        "_wanted",
        "on_message",
    )

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        # If set, it is called with every message, and `read` only waits for the end. It must not raise.
        self.on_message: Callable[[bytes], None] | None = None
        self._messages: deque[bytes] = deque()
        self._unread = 0  # bytes in `_messages`
        self._owed = 0  # bytes for which the window is reopened when less is unread
        self._rest = bytearray()  # the start of an incomplete message
        self._wanted = 0  # bytes needed in `_rest` before it is parsed again
        self._waiting: asyncio.Future[None] | None = None
        self._failure: RpcFailed | None = None

    def send(self, message: bytes, *, last: bool = False) -> None:
        """Send one message, or hold it until the server's window has room. After the end it is dropped."""
        if not self.over:
            self.ends = last
            self.connection.write(self, b"\0" + len(message).to_bytes(4, "big") + message)

    async def read(self) -> bytes | None:
        """The next message; None after a successful end. Raises `RpcFailed` after a failure or `cancel`."""
        while not self._messages:
            if self.over:
                if self._failure is not None:
                    raise self._failure
                return None
            self._waiting = self.connection.loop.create_future()
            await self._waiting
        message = self._messages.popleft()
        self._unread -= len(message) + MESSAGE_BYTES
        self._pay()
        return message

    def cancel(self, reason: str = "it was cancelled") -> None:
        """Cancel the stream; its reader gets `reason` as an error."""
        if not self.over:
            self.connection.reset(self)
            self.ended(RpcFailed(Code.CANCELLED, reason))

    def took_data(self, data: bytes) -> None:
        self._owed += len(data)
        check(self._owed <= WINDOW_BYTES, "it sends more than its window allows")
        if not self._rest:
            self._take_messages(data)
        else:
            self._rest += data
            if len(self._rest) >= self._wanted:
                data = bytes(self._rest)
                self._rest.clear()
                self._take_messages(data)
        self._pay()

    def ended(self, failure: RpcFailed | None) -> None:
        if failure is None and self._rest:
            failure = RpcFailed(Code.INTERNAL, "the stream ended in the middle of a message")
        self.over = True
        self._failure = failure
        self._wake()

    def _take_messages(self, data: bytes) -> None:
        place, end, wanted = 0, len(data), 5
        while end - place >= 5:
            size = int.from_bytes(data[place + 1 : place + 5], "big")
            if data[place] or size > rpc_answer_bytes_max:
                self.connection.reset(self)
                self.ended(RpcFailed(Code.INTERNAL, "a message that is compressed, or too long"))
                return
            if end - place < size + 5:
                wanted = size + 5
                break
            message = data[place + 5 : place + 5 + size]
            place += 5 + size
            if self.on_message is not None:
                self.on_message(message)
                if self.over:
                    return
            else:
                self._messages.append(message)
                self._unread += size + MESSAGE_BYTES
        self._rest += data[place:]
        self._wanted = wanted
        if self._messages:
            self._wake()

    def _pay(self) -> None:
        if self._unread < UNREAD_BYTES_MAX:
            owed, self._owed = self._owed, 0
            self.reopen(owed)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
