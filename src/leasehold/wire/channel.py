"""A client's connection to a server: many calls in flight, answers matched by number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from errno import ECONNREFUSED
from typing import TypeVar, cast

from msgspec import Struct

from leasehold.base.errors import Unavailable
from leasehold.base.limits import wire_frame_bytes_max
from leasehold.runtime.tls import Tls
from leasehold.wire.body import unpack
from leasehold.wire.errors import CallLost, Malformed, NoListener, RpcRefused
from leasehold.wire.frame import PUSH, Err, Response, ResponseReader, lone_push, request
from leasehold.wire.rpc import Method
from leasehold.wire.schema import TEXT

Q = TypeVar("Q", bound=Struct)
A = TypeVar("A", bound=Struct)


class Channel(asyncio.Protocol):
    """One connection. Created by `open_channel`; a closed channel is never reopened."""

    def __init__(self, address: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.address = address
        self.closed = False
        self.leaving = False  # the peer refuses further requests, because it stops
        self.writable = True  # False while the peer does not read: `call` waits then
        self.ever_received = False
        self._received = False  # any bytes since `take_received`
        self._on_close: list[Callable[[], None]] = []
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseReader(wire_frame_bytes_max)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._push_handlers: dict[int, Callable[[bytes], None]] = {}
        self._seq = 0
        self._outgoing: list[bytes] = []
        self._may_write = asyncio.Event()  # unset while the peer reads more slowly than we write
        self._may_write.set()

    # --- calls

    async def call(self, function: Method[Q, A], message: Q, *, timeout_ms: int, attachment: bytes = b"") -> A:
        """Call one of Leasehold's own functions and return its answer."""
        answer, _ = await self.exchange(function, message, timeout_ms=timeout_ms, attachment=attachment)
        return answer

    async def exchange(
        self, function: Method[Q, A], message: Q, *, timeout_ms: int, attachment: bytes = b""
    ) -> tuple[A, bytes]:
        """Like `call`, but also returns the attachment of the answer."""
        body = function.pack_request(message)
        answered = await self.raw_call(function.id, body, timeout_ms=timeout_ms, attachment=attachment)
        return function.unpack_answer(answered.body), answered.attachment

    async def raw_call(self, function: int, body: bytes, *, timeout_ms: int, attachment: bytes = b"") -> Response:
        """Send a raw body. `Unavailable`: not sent; `CallLost`: outcome unknown; `RpcRefused`: error answer."""
        if not self._may_write.is_set():
            timeout_ms = await self._wait_writable(timeout_ms)
        if self.closed:
            raise Unavailable(f"the connection to {self.address} is closed; nothing was sent")
        seq = self._seq = (self._seq + 1) & 0xFFFFFFFF
        future: asyncio.Future[Response] = self.loop.create_future()
        self._waiting[seq] = future
        timer = self.loop.call_later(timeout_ms / 1000, self._late, seq, timeout_ms)
        self._send(request(seq, function, body, attachment))
        try:
            answered = await future
        finally:
            timer.cancel()
            self._waiting.pop(seq, None)
        if answered.err == Err.TIMED_OUT:  # the peer itself does not know the outcome
            raise CallLost(f"{self.address}: {_message_of(answered.body)}")
        if answered.err == Err.NOT_CONNECTED:  # the node stops: further requests would be refused too
            self.leaving = True
            raise Unavailable(f"{self.address}: {_message_of(answered.body)}")
        if answered.err != Err.OK:
            raise RpcRefused(answered.err, _message_of(answered.body))
        return answered

    def say(self, function: int, body: bytes) -> None:
        """Send a raw body immediately, without expecting an answer; the server's handler must send none."""
        if self._transport is not None and not self.closed:
            self._seq = (self._seq + 1) & 0xFFFFFFFF
            if self._outgoing:
                self._flush()
            self._transport.write(request(self._seq, function, body))

    def on_push(self, function: int, handler: Callable[[bytes], None]) -> None:
        """Call `handler(body)` for every push of this function, with the raw body."""
        self._push_handlers[function] = handler

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection ends, in the order of these calls."""
        self._on_close.append(callback)

    def take_received(self) -> bool:
        """Whether any bytes arrived since the last call."""
        received, self._received = self._received, False
        return received

    @property
    def usable(self) -> bool:
        """Whether another request may be sent here."""
        return not (self.closed or self.leaving)

    @property
    def waits(self) -> bool:
        """Whether any call waits for an answer."""
        return bool(self._waiting)

    def probe(self, function: int) -> None:
        """Send a request whose answer, whatever it is, only shows that the peer is alive."""
        if not self.closed:
            self._seq = (self._seq + 1) & 0xFFFFFFFF
            self._send(request(self._seq, function, b""))

    def close(self, reason: str = "it was closed") -> None:
        """Close the connection; calls in flight fail with `CallLost`."""
        self._end(reason)

    def close_silently(self) -> None:
        """As `close`, without the callbacks of `on_close`."""
        self._on_close.clear()
        self._end("it was closed")

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked: uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received = self.ever_received = True
        if (
            self._push_handlers
            and self._reader.between
            and (push := lone_push(data)) is not None
            and push[0] in self._push_handlers
        ):
            self._push_handlers[push[0]](push[1])
            return
        try:
            responses = self._reader.feed(data)
        except Malformed as error:
            self._end(str(error))
            return
        for item in responses:
            if item.kind == PUSH:
                if (handler := self._push_handlers.get(item.seq)) is not None:
                    handler(item.body)
                continue
            future = self._waiting.get(item.seq)
            if future is not None and not future.done():  # no call waits for an answer after its deadline
                future.set_result(item)

    def pause_writing(self) -> None:
        self.writable = False
        self._may_write.clear()

    def resume_writing(self) -> None:
        self.writable = not self.closed
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "the peer closed it")

    # --- inside

    async def _wait_writable(self, timeout_ms: int) -> int:
        """Wait until the peer reads again; returns the remaining time."""
        until_s = self.loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(until_s):
                await self._may_write.wait()
        except TimeoutError:
            raise Unavailable(f"{self.address} does not read; nothing was sent") from None
        return max(1, int((until_s - self.loop.time()) * 1000))

    def _send(self, frame: bytes) -> None:
        """Queue a frame: all calls of one turn of the loop share one write."""
        if not self._outgoing:
            self.loop.call_soon(self._flush)
        self._outgoing.append(frame)

    def _flush(self) -> None:
        frames, self._outgoing = self._outgoing, []
        if frames and self._transport is not None and not self.closed:
            self._transport.write(b"".join(frames))

    def _late(self, seq: int, timeout_ms: int) -> None:
        future = self._waiting.get(seq)
        if future is not None and not future.done():
            future.set_exception(CallLost(f"{self.address} did not answer within {timeout_ms} ms: outcome unknown"))

    def _end(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self.writable = False
        self._may_write.set()
        if self._transport is not None:
            self._transport.abort()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(CallLost(f"the connection to {self.address} ended ({reason}): outcome unknown"))
        for callback in self._on_close:
            callback()


def _message_of(body: bytes) -> str:
    try:
        return str(unpack(TEXT, body))
    except Malformed:
        return "(no message)"


async def open_channel(host: str, port: int, *, timeout_ms: int, tls: Tls | None = None) -> Channel:
    """Connect. Raises `Unavailable` on failure or timeout, `NoListener` if the connection was refused."""
    loop = asyncio.get_running_loop()
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            if tls is None:
                _, channel = await loop.create_connection(lambda: Channel(address), host, port)
            else:
                context, name = tls.client(), tls.server_name(host)
                _, channel = await loop.create_connection(
                    lambda: Channel(address), host, port, ssl=context, server_hostname=name
                )
    except (OSError, TimeoutError) as error:
        kind = NoListener if _is_refusal(error) else Unavailable
        raise kind(f"cannot connect to {address}: {error or 'timed out'}") from None
    return channel


def _is_refusal(error: OSError | TimeoutError) -> bool:
    """A host name may have several addresses: asyncio joins their errors into one message."""
    message = str(error)
    return isinstance(error, ConnectionRefusedError) or 0 < message.count("[Errno ") == message.count(
        f"[Errno {ECONNREFUSED}]"
    )
