"""One call: what the server still takes of the request, what has come of the answer, and who waits for it."""

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

WINDOW_BYTES = 4096 * KIB  # that we grant to a call
UNREAD_BYTES_MAX = 1024 * KIB  # of a stream's answers, before its server has to wait
MESSAGE_BYTES = 64  # that a message takes of our memory, however short it is
REOPENED_BYTES = 64 * KIB  # it is not worth a frame to open it for less
# What the server was not asked to give up it may answer for so much longer: 5 s and two of etcd's election timeouts.
LATE_ANSWER_S = 10.0
# A loop that stood still finds the deadline and the answer together: the answer is read first.
LAST_LOOK_S = 0.001


class Call(ABC):
    """One stream of a connection. It gets its number when it is begun."""

    __slots__ = ("answering", "connection", "ends", "held", "over", "received", "stream", "window")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.stream = 0
        self.window = 0  # what the server still takes
        self.held = b""  # of the request, what did not fit
        self.ends = False  # the request, with what is held
        self.over = False
        self.answering = False  # the server has begun to answer: whatever it says later, it has seen the call
        self.received = 0  # bytes for which the server's window was not opened again

    @abstractmethod
    def took_data(self, data: bytes) -> None:
        """Bytes of the answer have come."""

    @abstractmethod
    def ended(self, failure: RpcFailed | None) -> None:
        """The call is over: the connection has forgotten it."""

    def took_trailers(self, headers: Headers) -> None:
        self.ended(status_of(headers))

    def reopen(self, count: int) -> None:
        """Let the server send `count` more, when that is worth a frame."""
        self.received += count
        if self.received >= REOPENED_BYTES and not self.over:
            self.connection.open_window(self, self.received)
            self.received = 0


class UnaryCall(Call):
    """One request, one answer.

    An `unhurried` one is never taken back: whoever asked may stop waiting, but the server is left to answer.
    """

    __slots__ = ("_first", "_more", "_size", "_timer", "_told", "answer", "unhurried")

    def __init__(self, connection: Connection, *, unhurried: bool) -> None:
        super().__init__(connection)
        self.answer: asyncio.Future[bytes] = connection.loop.create_future()
        self.unhurried = unhurried
        self._first = b""  # of the answer, and mostly all of it
        self._more: bytearray | None = None  # all of one that came in pieces
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._told: asyncio.Future[None] | None = None

    def limit(self, timeout_s: float) -> None:
        """End it when its time is up."""
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
        """Done when the server has answered, whether anybody waits for that or not."""
        if self._told is None:
            self._told = self.connection.loop.create_future()
        return self._told

    def ended(self, failure: RpcFailed | None) -> None:
        self._set_over()
        if self.answer.done():
            return  # nobody waits any more
        if failure is None:
            whole = self._first if self._more is None else self._more
            if whole[:1] == b"\0" and int.from_bytes(whole[1:5], "big") == self._size - 5:
                self.answer.set_result(self._first[5:] if self._more is None else bytes(memoryview(whole)[5:]))
                return
            failure = RpcFailed(Code.INTERNAL, "the answer is not one whole message")
        self.answer.set_exception(failure)

    def abandon(self) -> None:
        """Nobody waits any more. What the server has not heard of it need not answer, either."""
        if not self.over and not (self.unhurried and self.stream):
            self._take_back()

    def _take_back(self) -> None:
        self._set_over()
        self.connection.reset(self)

    def _set_over(self) -> None:
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._told is not None and not self._told.done():
            self._told.set_result(None)

    def _late(self) -> None:
        self._timer = self.connection.loop.call_later(LAST_LOOK_S, self._time_is_up)

    def _time_is_up(self) -> None:
        if not self.answer.done():
            why = "no answer in time" if self.stream else "the server took no more calls"
            self.answer.set_exception(RpcFailed(Code.DEADLINE_EXCEEDED, why, sent=self.stream != 0))
        if self.unhurried and self.stream:
            self._timer = self.connection.loop.call_later(LATE_ANSWER_S, self._take_back)
        else:
            self._take_back()


class StreamCall(Call):
    """Requests and answers, for as long as both like. Answers that are not read keep the server from sending more."""

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
        # Told every message as it comes, if set: then `read` waits for the end only. It must not raise.
        self.on_message: Callable[[bytes], None] | None = None
        self._messages: deque[bytes] = deque()
        self._unread = 0  # bytes that they take
        self._owed = 0  # bytes for which the window is opened again when less is unread
        self._rest = bytearray()  # of a message that is not whole
        self._wanted = 0  # so many make it worth looking again
        self._waiting: asyncio.Future[None] | None = None
        self._failure: RpcFailed | None = None

    def send(self, message: bytes, *, last: bool = False) -> None:
        """Send one message, or hold it until the server's window has room. After the end it is dropped."""
        if not self.over:
            self.ends = last
            self.connection.write(self, b"\0" + len(message).to_bytes(4, "big") + message)

    async def read(self) -> bytes | None:
        """The next message; None at a good end. Raises `RpcFailed` at another one, or if it was cancelled here."""
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
        """End it; whoever reads is told the reason."""
        if not self.over:
            self.connection.reset(self)
            self.ended(RpcFailed(Code.CANCELLED, reason))

    def took_data(self, data: bytes) -> None:
        self._owed += len(data)
        check(self._owed <= WINDOW_BYTES, "it sends more than its window")
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
