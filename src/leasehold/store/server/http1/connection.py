"""One HTTP/1.1 connection: requests one after another, each with its own task. The parser is `h11`, without I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

import h11

from leasehold.runtime.log import get_logger
from leasehold.store.server.clients import Burden, Clients
from leasehold.store.server.http1.exchange import Exchange

# The limit for the head of a request. The parser gets no more at a time: it has no limit for a head in one piece.
HEAD_BYTES_MAX = 8 << 10
# A client that is slower is disconnected: at the head of a request, at its body, and between requests.
HEAD_S, BODY_S, IDLE_S = 10.0, 60.0, 120.0
# A client that does not read a complete response in this time is disconnected.
UNREAD_S = 60.0

Serve = Callable[[Exchange], Awaitable[None]]
_log = get_logger("leasehold.store")


class Http1Connection(asyncio.Protocol):
    """`serve` handles a request. The `Line` of its exchanges."""

    def __init__(self, serve: Serve, clients: Clients) -> None:
        self._serve = serve
        self._clients = clients
        self._burden = Burden(clients.memory)
        self._loop = asyncio.get_running_loop()
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None
        self._paused = False
        self._leaving = False

    @property
    def calls(self) -> bool:
        """Whether a request is being handled."""
        return self._exchange is not None

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._limit(HEAD_S)

    def data_received(self, data: bytes) -> None:
        if self._exchange is None and self._parser.trailing_data[0] == b"":
            self._limit(HEAD_S)  # the beginning of a request; later pieces do not extend the time
        for place in range(0, len(data), HEAD_BYTES_MAX):
            if self._transport is None or self._transport.is_closing():
                return
            self._parser.receive_data(data[place : place + HEAD_BYTES_MAX])
            self._take_events()

    def eof_received(self) -> bool:
        """The client sends no more. Its last request is still answered, unless the answer has no end."""
        self._parser.receive_data(b"")
        self._take_events()
        return self._exchange is not None and not self._exchange.begun

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._cancel_timer()
        if self._task is not None:
            self._task.cancel()
        self._clients.discard(self)
        self._burden.drop()

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._burden.hold(self._transport.get_write_buffer_size())
        if self._exchange is None:
            self._limit(UNREAD_S)

    def resume_writing(self) -> None:
        self._paused = False
        self._burden.hold(-self._burden.held_bytes)
        if self._exchange is None:
            self._limit(IDLE_S)
            self._loop.call_soon(self._take_events)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def go_away(self) -> None:
        """Close after the request that is being handled."""
        self._leaving = True
        if self._exchange is None:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._limit(UNREAD_S)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def idle_s(self, now_s: float) -> float:
        return 0.0  # it has timers of its own

    def check_alive(self, now_s: float, silent_s: float) -> None:
        """It has timers of its own; the end of a stream's client is noticed by reading."""

    def _limit(self, seconds: float | None) -> None:
        """Disconnect the client in `seconds`, unless this is called again."""
        self._cancel_timer()
        if seconds is not None and self._transport is not None:
            self._timer = self._loop.call_later(seconds, self.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- requests ---

    def _take_events(self) -> None:
        try:
            while self._transport is not None and not self._transport.is_closing():
                if self._paused and self._exchange is None:
                    self.want_body(False)  # the last response was not read: no further ones
                    break
                event = self._parser.next_event()
                if event is h11.PAUSED and len(self._parser.trailing_data[0]) > HEAD_BYTES_MAX:
                    self.want_body(False)  # the next requests wait. Fewer bytes do not stop us from seeing the end
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                if isinstance(event, h11.ConnectionClosed):  # h11 repeats it
                    if self._exchange is None:
                        self.close()
                    break
                self._take(event)
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def _take(self, event: Any) -> None:
        if isinstance(event, h11.Request):
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            method, target = event.method.decode("latin-1"), event.target.decode("latin-1")
            self._exchange = Exchange(self, method, target, headers)
            self._limit(BODY_S)
            if self._parser.they_are_waiting_for_100_continue:
                self._write(h11.InformationalResponse(status_code=100, headers=[]))
            self._task = self._loop.create_task(self._handle(self._exchange))
        elif isinstance(event, h11.Data) and self._exchange is not None:
            self._burden.buffer(len(event.data))
            if self._burden.overfull:
                raise h11.RemoteProtocolError("the memory for requests is full", error_status_hint=503)
            self._exchange.feed(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage) and self._exchange is not None:
            self._limit(None)
            self._exchange.body_ended()

    async def _handle(self, exchange: Exchange) -> None:
        try:
            await self._serve(exchange)
        except asyncio.CancelledError:
            return
        except Exception:
            _log.exception("a request could not be handled: this is a bug")
            if exchange.begun:
                self.abort()
            else:
                exchange.respond(500, b"leasehold: internal error; see the store's log\n", "text/plain; charset=utf-8")

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """The bytes are no HTTP, or too many. A response, if none was begun, and the end."""
        if self._task is not None:
            self._task.cancel()
        if self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.respond(error.error_status_hint, [("Content-Type", "text/plain")], whole=f"{error}\n".encode())
        self.close()

    # --- responses: the line of an exchange ---

    def respond(self, status: int, headers: list[tuple[str, str]], *, whole: bytes | None) -> None:
        if whole is not None:
            headers = [*headers, ("Content-Length", str(len(whole)))]
        if self._leaving or self._parser.their_state not in (h11.DONE, h11.MUST_CLOSE):
            headers = [*headers, ("Connection", "close")]  # the rest of the request is not read
        self._limit(None)
        reason = HTTPStatus(status).phrase
        self._write(h11.Response(status_code=status, headers=headers, reason=reason.encode()))
        if whole is not None:
            if whole:
                self._write(h11.Data(data=whole))
            self.finish()

    def send_part(self, data: bytes) -> None:
        self._write(h11.Data(data=data))

    def finish(self) -> None:
        self._write(h11.EndOfMessage())
        self._exchange = self._task = None
        self._burden.buffer(-self._burden.buffered_bytes)
        if self._parser.our_state is h11.MUST_CLOSE or self._parser.their_state is not h11.DONE or self._leaving:
            self.close()
            return
        self._parser.start_next_cycle()
        self._limit(UNREAD_S if self._paused else IDLE_S)
        self.want_body(not self._paused)
        self._loop.call_soon(self._take_events)  # the next request may have arrived

    def _write(self, event: Any) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        data = self._parser.send(event)
        if data:
            self._transport.write(data)

    async def writable(self) -> None:
        while self._paused:
            self._limit(UNREAD_S)
            self._room = self._loop.create_future()
            await self._room
            self._limit(None)

    def want_body(self, wanted: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()
