"""A server's address and the connection to it, which is opened when needed, and again after it was lost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from math import ceil
from typing import Any

from google.protobuf.message import DecodeError

from leasehold.etcd.transport.call import LATE_ANSWER_S, StreamCall, UnaryCall
from leasehold.etcd.transport.connection import Connection
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.etcd.transport.wrong_server import HUNG_UP, explained
from leasehold.http2.header_codec import literal, secret
from leasehold.mvcc.errors import Code

Metadata = tuple[tuple[str, str], ...]

# The time limit of one attempt to connect, and the pause after a failed one.
CONNECT_S = 2.0
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.1, 1.0
# Calls on a connection that was replaced get this long to finish.
DRAIN_S = 10.0
# The connection is replaced at most this often.
RENEW_INTERVAL_S = 1.0
# When the client is closed, unhurried calls get this long to finish.
LAST_ANSWERS_S = 1.0
# If a timer is later than this, the loop has stalled.
STOOD_STILL_S = 0.05
TIMEOUT_S_MAX = 86_400.0  # the header has 8 digits, and callers may pass infinity
_TLS_WANTED = ": if it requires TLS, write etcds://"
_NO_TLS_OR_CERT = ": if it requires a client certificate, set cert and key; if it does not use TLS, write etcd://"
_UNREADABLE = "the answer cannot be decoded"


class Channel:
    """One server. `connection` is not None while calls can be sent."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.connection: Connection | None = None
        self.failure = ""  # why the last attempt to connect failed
        self._address = address
        self._host, self._port = host.strip("[]"), int(port)
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._renewed_s = 0.0
        self._alive: set[Connection] = set()  # the one in use, and replaced ones with unfinished calls
        self._closed = False

    def unary(self, path: str, request: Any, response: Any, *, unhurried: bool = False) -> UnaryMethod:
        """A method with one request and one answer. An `unhurried` call is never cancelled once it was sent."""
        return UnaryMethod(self, self._head(path), request, response, unhurried)

    def stream(self, path: str, request: Any, response: Any) -> StreamMethod:
        """A method with any number of requests and answers."""
        return StreamMethod(self, self._head(path), request, response)

    async def ready(self, timeout_s: float, *, insist: bool) -> bool:
        """Wait for a connection. Returns whether there is one.

        A failure to connect ends the wait immediately, unless `insist` is set, for a cluster with a single endpoint.
        """
        end_s = self._loop.time() + timeout_s
        while self.connection is None and not self._closed:
            now_s = self._loop.time()
            if now_s >= end_s:
                # The loop stalled past the deadline: the connection gets that time again.
                if now_s - end_s < STOOD_STILL_S:
                    break
                end_s = now_s + min(now_s - end_s, timeout_s)
            if now_s < self._not_before_s:
                if not insist:
                    break
                await asyncio.sleep(min(self._not_before_s, end_s) - now_s)
                continue
            if self._connecting is None:
                self._connecting = self._loop.create_task(self._connect())
            done, _ = await asyncio.wait({self._connecting}, timeout=end_s - now_s)
            if done and self.connection is None and not insist:
                break
        return self.connection is not None

    def renew(self) -> None:
        """Replace the connection, which may be half open. Its unfinished calls get `DRAIN_S`."""
        connection = self.connection
        if connection is None or self._loop.time() - self._renewed_s < RENEW_INTERVAL_S:
            return
        self._renewed_s = self._loop.time()
        connection.leave()
        self._loop.call_later(DRAIN_S, connection.abort, "it was replaced")

    def drop(self, reason: str) -> None:
        """Close the connection now, with all calls on it."""
        if self.connection is not None:
            self.connection.abort(reason)

    async def close(self) -> None:
        """Close the connection and fail its calls. Unhurried calls get a moment to finish."""
        self._closed = True
        try:
            if self._connecting is not None:
                self._connecting.cancel()
                await asyncio.gather(self._connecting, return_exceptions=True)
            last = [call.when_over() for connection in self._alive for call in connection.unhurried]
            if last:
                await asyncio.wait(last, timeout=LAST_ANSWERS_S)
        finally:  # also if `close` is cancelled
            for connection in self._alive:
                connection.abort("the connection was closed")

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                self.connection = await self._open()
            self._alive = {connection for connection in self._alive if not connection.ended}
            self._alive.add(self.connection)
            self._failures, self.failure = 0, ""
        except Exception as error:  # also an invalid host name: in any case there is no connection
            self.failure = explained(error)
            if self.failure == HUNG_UP:
                self.failure += _NO_TLS_OR_CERT if self._tls is not None else _TLS_WANTED
            self._not_before_s = self._loop.time() + min(BACKOFF_S_MIN * 2**self._failures, BACKOFF_S_MAX)
            self._failures += 1
        finally:
            self._connecting = None

    async def _open(self) -> Connection:
        name = self._host if self._tls is not None else None
        _, connection = await self._loop.create_connection(
            lambda: Connection(self._gone), self._host, self._port, ssl=self._tls, server_hostname=name
        )
        try:
            await connection.opened
            if not connection.usable:  # the server sent SETTINGS and GOAWAY together
                raise not_connected()
        except BaseException:
            connection.abort("it did not open")
            raise
        return connection

    def _gone(self, connection: Connection) -> None:
        """The connection accepts no more calls."""
        if self.connection is connection:
            self.connection = None

    def _head(self, path: str) -> bytes:
        # POST is number 3 of HPACK's static table, http 6, https 7.
        return (
            (b"\x83\x87" if self._tls is not None else b"\x83\x86")
            + literal(b":path", path.encode())
            + literal(b":authority", self._address.encode())
            + literal(b"content-type", b"application/grpc")
            + literal(b"te", b"trailers")
            + literal(b"user-agent", b"leasehold")
        )


class UnaryMethod:
    """`await method(request, timeout=1.0)` returns the answer, or raises `RpcFailed`."""

    __slots__ = ("_channel", "_head", "_head_s", "_head_timed", "_parse", "_serialize", "_unhurried")

    def __init__(self, channel: Channel, head: bytes, request: Any, response: Any, unhurried: bool) -> None:
        self._channel = channel
        self._head = head
        self._head_timed, self._head_s = head, -1.0  # the headers with the last timeout, which is usually the next one
        self._serialize = request.SerializeToString
        self._parse = response.FromString
        self._unhurried = unhurried

    async def __call__(self, request: Any, timeout: float, metadata: Metadata = ()) -> Any:
        connection = self._channel.connection
        if connection is None:
            raise not_connected()
        answer: asyncio.Future[bytes] = connection.loop.create_future()
        call = self._start(connection, self._serialize(request), timeout, _to_future(answer), metadata)
        try:
            return parsed(self._parse, await answer)
        except asyncio.CancelledError:
            call.abandon()
            raise

    def start(
        self, connection: Connection, message: bytes, timeout: float, done: Callable[[bytes | RpcFailed], None]
    ) -> UnaryCall:
        """Send an encoded request, without a task or a future. `done` is called once, never from inside this call."""
        return self._start(connection, message, timeout, done, ())

    def parse(self, answer: bytes) -> Any:
        """The answer as a message. Raises `RpcFailed`."""
        return parsed(self._parse, answer)

    def _start(
        self,
        connection: Connection,
        message: bytes,
        timeout: float,
        done: Callable[[bytes | RpcFailed], None],
        metadata: Metadata,
    ) -> UnaryCall:
        call = UnaryCall(connection, done, unhurried=self._unhurried)
        if timeout > TIMEOUT_S_MAX:
            timeout = TIMEOUT_S_MAX
        if timeout != self._head_s:
            server_timeout_s = timeout + LATE_ANSWER_S if self._unhurried else timeout
            self._head_timed = self._head + literal(b"grpc-timeout", b"%dm" % ceil(server_timeout_s * 1_000))
            self._head_s = timeout
        head = self._head_timed + encoded(metadata) if metadata else self._head_timed
        connection.begin(call, head, b"\0" + len(message).to_bytes(4, "big") + message)
        call.limit(timeout)
        return call


def _to_future(future: asyncio.Future[bytes]) -> Callable[[bytes | RpcFailed], None]:
    def done(answer: bytes | RpcFailed) -> None:
        if future.done():
            return  # the caller was cancelled
        if isinstance(answer, RpcFailed):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return done


class StreamMethod:
    """`method(metadata=...)` opens a stream of messages, or raises `RpcFailed`."""

    __slots__ = ("_channel", "_head", "_parse", "_serialize")

    def __init__(self, channel: Channel, head: bytes, request: Any, response: Any) -> None:
        self._channel = channel
        self._head = head
        self._serialize = request.SerializeToString
        self._parse = response.FromString

    def __call__(self, metadata: Metadata = ()) -> MessageStream:
        connection = self._channel.connection
        if connection is None:
            raise not_connected()
        call = StreamCall(connection)
        connection.begin(call, self._head + encoded(metadata), b"")
        return MessageStream(call, self._serialize, self._parse)


class MessageStream:
    """A stream of messages, as its user sees it."""

    __slots__ = ("_call", "_parse", "_serialize", "cancel")

    def __init__(self, call: StreamCall, serialize: Any, parse: Any) -> None:
        self._call = call
        self._serialize = serialize
        self._parse = parse
        self.cancel = call.cancel

    def send(self, request: Any, *, last: bool = False) -> None:
        """Send one message. The `last` one also ends our side of the stream.

        After the end of the stream, messages are dropped: the reader gets the reason.
        """
        self._call.send(self._serialize(request), last=last)

    async def deliver(self, on_message: Callable[[Any], None]) -> None:
        """Call `on_message` with every message as it arrives. Returns or raises at the end, like `read`.

        `on_message` is called while the connection reads, so it must not raise.
        """

        def pass_on(data: bytes) -> None:
            try:
                message = self._parse(data)
            except DecodeError:
                self._call.cancel(_UNREADABLE)
            else:
                on_message(message)

        self._call.on_message = pass_on
        while (data := await self._call.read()) is not None:  # messages that arrived before
            pass_on(data)

    async def read(self) -> Any:
        """The next message; None after a successful end. Raises `RpcFailed` after a failure or `cancel`."""
        data = await self._call.read()
        return None if data is None else parsed(self._parse, data)


def parsed(parse: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return parse(data)
    except DecodeError:
        raise RpcFailed(Code.INTERNAL, _UNREADABLE) from None


def not_connected() -> RpcFailed:
    return RpcFailed(Code.UNAVAILABLE, "no connection", sent=False)


def encoded(metadata: Metadata) -> bytes:
    """The caller's headers, marked as never indexed: one may be a token."""
    return b"".join([secret(name.encode(), value.encode()) for name, value in metadata])
