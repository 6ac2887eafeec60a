"""One call: the messages of its request, its handler, and the answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf.message import DecodeError

from leasehold.base.errors import InvalidArgument, LeaseholdError, Unavailable, UnknownOutcome
from leasehold.base.limits import KIB, store_request_bytes_max
from leasehold.http2.header_codec import ProtocolBroken, timeout_s
from leasehold.mvcc.errors import Code, StoreError
from leasehold.runtime.log import get_logger
from leasehold.store.group_commit import OnSettled

if TYPE_CHECKING:
    from leasehold.store.server.http2.connection import Connection

Message = Any

# etcd's limit: a request and its envelope. Larger requests are rejected before they are read.
MESSAGE_BYTES_MAX = store_request_bytes_max + 512 * KIB
MESSAGE_BYTES = 64  # memory that even an empty message takes
HELD_BYTES_MAX = 256 * KIB  # of unsent answers of one call; then it has to wait
# Of unread requests of one stream; then its sender has to wait.
REQUESTS_HELD_MAX = 1_000
REQUESTS_HELD_BYTES_MAX = 1024 * KIB
WINDOW_BYTES = 4096 * KIB  # granted to a call, and to all calls of a connection

_log = get_logger("leasehold.store")


class CallEnded(Exception):
    """Raised inside a handler to end its call with a status."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def refusal(error: BaseException, *, plain: bool = False) -> tuple[Code, str]:
    """The status that etcd answers for an error. Its lock and election services drop the codes: `plain`."""
    if isinstance(error, CallEnded):
        return error.code, error.message
    if isinstance(error, StoreError) and not plain:
        return error.code, error.message
    if isinstance(error, (Unavailable, UnknownOutcome)):
        return Code.UNAVAILABLE, str(error)
    if isinstance(error, InvalidArgument):
        return Code.INVALID_ARGUMENT, str(error)
    return Code.UNKNOWN, str(error)


class StreamCall(Protocol):
    """A call, as the handler of a stream sees it: over gRPC or over JSON."""

    async def read(self) -> bytes | None:
        """The next message of the request; None at its end."""
        ...

    async def write(self, message: bytes) -> None:
        """Send one answer of several. Waits while the client does not read."""
        ...

    def answer(self, message: bytes) -> None:
        """Send the only answer of a call, which ends it."""
        ...


class Handler:
    """The handler of a method.

    `direct` is for small calls: a plain function answers the request immediately, and the answer is sent when the
    store has settled, without a task. `stream` is a coroutine that reads and writes messages.
    """

    __slots__ = ("direct", "kind", "stream", "when_settled")

    def __init__(
        self,
        kind: Any = None,
        direct: Callable[[Message], Message] | None = None,
        when_settled: Callable[[OnSettled], bool] = lambda _notify: False,
        stream: Callable[[StreamCall], Awaitable[None]] | None = None,
    ) -> None:
        self.kind = kind
        self.direct = direct
        self.when_settled = when_settled
        self.stream = stream


def unary(kind: Any, behaviour: Callable[[Message], Awaitable[Message]], *, plain: bool = False) -> Handler:
    """One request, one answer, with waiting in between."""

    async def serve(call: StreamCall) -> None:
        data = await call.read()
        if data is None:
            raise CallEnded(Code.INTERNAL, "grpc: no request was sent")
        try:
            answer = await behaviour(parse(kind, data))
        except LeaseholdError as error:
            raise CallEnded(*refusal(error, plain=plain)) from error
        call.answer(answer.SerializeToString())

    return Handler(stream=serve)


def parse(kind: Any, data: bytes) -> Message:
    """A request's message."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise CallEnded(Code.INTERNAL, f"grpc: error unmarshalling request: {error}") from None


class Call:
    """One stream of a connection."""

    __slots__ = (
        "_connection",
        "_handler",
        "_messages",
        "_messages_bytes",
        "_reading",
        "_received",
        "_rest",
        "_room",
        "_taken",
        "_task",
        "_timer",
        "_wanted",
        "buffered_bytes",
        "ending",
        "headers_sent",
        "held",
        "request_done",
        "stream",
        "window",
    )

    def __init__(self, connection: Connection, stream: int, window: int, handler: Handler | None) -> None:
        self._connection = connection
        self._handler = handler
        self.stream = stream
        self.window = window  # bytes that the client still accepts
        self.headers_sent = False
        self.held = bytearray()  # answers that did not fit into the window
        self.ending: bytes | None = None
        self.request_done = False
        self.buffered_bytes = 0  # of requests that are incomplete or unread
        self._rest: bytearray | None = None  # the start of an incomplete message, joined: pieces may be tiny
        self._wanted = 0  # bytes needed in `_rest` before it is parsed again
        self._messages: deque[bytes] = deque()
        self._messages_bytes = 0
        self._taken = False  # the one request of a direct call
        self._received = 0  # bytes for which the client's window is not reopened yet
        self._reading: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, timeout: bytes | None = None) -> None:
        """`timeout` is the value of the client's header."""
        if self._handler is not None and self._handler.stream is not None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._serve(self._handler.stream))
            limit_s = None if timeout is None else timeout_s(timeout)
            if limit_s is not None:
                # A live client cancels its call at the deadline. This is for a client that vanished.
                self._timer = loop.call_later(limit_s, self._time_is_up)

    def _time_is_up(self) -> None:
        self.cancel()
        self.end(Code.DEADLINE_EXCEEDED, "context deadline exceeded")

    # --- the request ---

    def received(self, count: int, data: bytes) -> None:
        """Bytes of the request have arrived; `count` includes padding."""
        self._received += count
        if self._received > WINDOW_BYTES:
            raise ProtocolBroken("a client sends more than its window")
        if self._rest is not None:
            self._rest += data
            if len(self._rest) < self._wanted:
                self._count_buffered()
                return
            data = bytes(self._rest)
        if not self._take_messages(data):
            return
        if self._messages:
            self._open_window()
            _wake(self._reading)
            if self._handler is not None and self._handler.direct is not None and not self._taken:
                self._taken = True
                if self._connection.burden.burdened:
                    self._connection.defer(self)
                else:
                    self.answer_directly()
        self._count_buffered()

    def _take_messages(self, data: bytes) -> bool:
        """Extract the complete messages from `data`, and keep the rest. Returns False if the call was rejected."""
        self._rest = None
        place, end, wanted = 0, len(data), 5
        while end - place >= 5:
            length = int.from_bytes(data[place + 1 : place + 5], "big")
            if data[place] or length > MESSAGE_BYTES_MAX:
                self._refuse_message(data[place], length)
                return False
            wanted = 5 + length
            if end - place < wanted:
                break
            self._messages.append(data[place + 5 : place + wanted])
            self._messages_bytes += length
            place += wanted
            wanted = 5
        if place < end:
            self._rest = bytearray(data[place:])
            self._wanted = wanted
        return True

    def _count_buffered(self) -> None:
        now_bytes = self._messages_bytes + len(self._messages) * MESSAGE_BYTES
        if self._rest is not None:
            now_bytes += len(self._rest)
        if now_bytes != self.buffered_bytes and self._open:
            self._connection.burden.buffer(now_bytes - self.buffered_bytes)
            self.buffered_bytes = now_bytes
            if self._connection.burden.overfull:
                self.cancel()
                self.end(Code.RESOURCE_EXHAUSTED, "too many unfinished requests")

    def _next_message(self) -> bytes:
        message = self._messages.popleft()
        self._messages_bytes -= len(message)
        return message

    def _refuse_message(self, compressed: int, length: int) -> None:
        if self._task is not None:
            self._task.cancel()
        if compressed:
            self.end(Code.UNIMPLEMENTED, "compressed requests are not taken")
            return
        message = f"grpc: received message larger than max ({length} vs. {MESSAGE_BYTES_MAX})"
        self.end(Code.RESOURCE_EXHAUSTED, message)

    def _open_window(self) -> None:
        """Reopen the client's window, but only while requests are read as fast as they arrive."""
        held = len(self._messages) >= REQUESTS_HELD_MAX or self._messages_bytes >= REQUESTS_HELD_BYTES_MAX
        if self._received > 64 * KIB and not held:
            self._connection.open_window(self, self._received)
            self._received = 0

    def request_ended(self) -> None:
        """The request is complete; `request_done` may have been called before."""
        self.request_done = True
        if self._rest is not None:
            self.cancel()
            self.end(Code.INTERNAL, "grpc: the request ends in the middle of a message")
        elif self._handler is not None and self._handler.direct is not None and not self._taken:
            self.end(Code.INTERNAL, "grpc: no request was sent")
        _wake(self._reading)

    async def read(self) -> bytes | None:
        """The next message of the request; None at its end."""
        while not self._messages:
            if self.request_done:
                return None
            self._reading = asyncio.get_running_loop().create_future()
            await self._reading
        message = self._next_message()
        self._open_window()
        self._count_buffered()
        return message

    # --- the answer ---

    def answer_directly(self) -> None:
        """Run a call that needs no task."""
        handler, data = self._handler, self._next_message()
        assert handler is not None
        try:
            assert handler.direct is not None
            answer: bytes = handler.direct(parse(handler.kind, data)).SerializeToString()
            waits = handler.when_settled(lambda failed: self._settled(failed, answer))
        except LeaseholdError as error:
            self._refuse_settled(handler, error)
            return
        except CallEnded as error:
            self.end(error.code, error.message)
            return
        except Exception:
            self._broken()
            return
        if not waits:
            self.answer(answer)

    def _refuse_settled(self, handler: Handler, error: LeaseholdError) -> None:
        """An error shows the store's state too, so it waits until that state is durable."""
        try:
            waits = handler.when_settled(lambda failed: self.end(*refusal(failed or error)))
        except LeaseholdError as failed:  # the store failed or was closed
            self.end(*refusal(failed))
            return
        if not waits:
            self.end(*refusal(error))

    def _settled(self, failed: BaseException | None, answer: bytes) -> None:
        if failed is None:
            self.answer(answer)
        else:
            self.end(*refusal(failed))

    def answer(self, message: bytes) -> None:
        """Send the only answer of a call, which ends it."""
        if self._open:
            self._connection.answer(self, message)

    async def write(self, message: bytes) -> None:
        """Send one answer of several. Waits while the client does not read."""
        if self._open:
            self._connection.write(self, message)
        while self._open and (len(self.held) > HELD_BYTES_MAX or self._connection.paused):
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def end(self, code: Code, message: str = "") -> None:
        if self._open:
            self._connection.refuse(self, int(code), message)

    @property
    def _open(self) -> bool:
        return self._connection.calls.get(self.stream) is self

    def has_room(self) -> None:
        _wake(self._room)

    def cancel(self) -> None:
        """The client has disconnected or cancelled the call."""
        if self._task is not None:
            self._task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def _serve(self, behaviour: Callable[[StreamCall], Awaitable[None]]) -> None:
        try:
            await behaviour(self)
        except asyncio.CancelledError:
            return
        except (LeaseholdError, CallEnded) as error:
            self.end(*refusal(error))
        except Exception:
            self._broken()
        else:
            self.end(Code.OK)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _broken(self) -> None:
        _log.exception("a call could not be handled: this is a bug")
        self.end(Code.INTERNAL, "leasehold: internal error; see the store's log")


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
