"""Transcodes requests of the JSON gateway to the handlers of the gRPC methods, and their answers back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec

from leasehold.base.errors import LeaseholdError
from leasehold.mvcc.errors import Code
from leasehold.store.group_commit import resolve
from leasehold.store.server.gateway.json_messages import BadJson, JsonValues, from_json, to_json
from leasehold.store.server.gateway.routes import ROUTES, Route
from leasehold.store.server.http1.exchange import BodyTooLarge, Exchange
from leasehold.store.server.http2.streams import MESSAGE_BYTES_MAX, CallEnded, Handler, refusal

# Base64 takes a third more than the bytes, and nested JSON a little besides.
BODY_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
NO_SNIFF = ("X-Content-Type-Options", "nosniff")

_HTTP_STATUS = {
    Code.OK: 200,
    Code.CANCELLED: 408,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.UNAUTHENTICATED: 401,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
}


class Gateway:
    """`handlers` are those of the gRPC methods, by path."""

    def __init__(self, handlers: Mapping[bytes, Handler]) -> None:
        self._handlers = handlers

    async def serve(self, exchange: Exchange) -> None:
        """Handle a request for a path below `/v3/`."""
        route = ROUTES.get(exchange.path)
        if route is None:
            exchange.respond(404, b"Not Found\n", TEXT, NO_SNIFF)
        elif exchange.method != "POST":
            exchange.respond(405, b"Method Not Allowed\n", TEXT, NO_SNIFF)
        else:
            try:
                await self._call(route, self._handlers[route.method], exchange)
            except BodyTooLarge:
                text = f"the body is larger than {BODY_BYTES_MAX} bytes\n"
                exchange.respond(413, text.encode(), TEXT)

    async def _call(self, route: Route, handler: Handler, exchange: Exchange) -> None:
        try:
            call = JsonCall(route, exchange)
            await call.read_first()
            if handler.direct is not None:
                call.answer(await _direct(handler, call.first()))
            else:
                assert handler.stream is not None
                await handler.stream(call)
        except (LeaseholdError, CallEnded) as error:
            _refuse(exchange, route, *refusal(error))
        else:
            if route.many_answers:
                exchange.finish(JSON)


class JsonCall:
    """One call, as a handler of a gRPC method sees it: messages in protobuf, both ways."""

    def __init__(self, route: Route, exchange: Exchange) -> None:
        self._route = route
        self._exchange = exchange
        self._values = JsonValues()
        self._requests: list[Any] = []
        self._ended = False

    async def read_first(self) -> None:
        """Read the first request, and for a single one, the whole body. A body may be empty: all defaults."""
        if self._route.many_requests:
            try:
                await self._read_more()
            except BadJson as error:
                raise CallEnded(Code.UNKNOWN, str(error)) from None
            return
        body = await self._exchange.whole_body(BODY_BYTES_MAX)
        values = self._values.feed(body)
        text = values[0] if values else self._values.rest()
        try:
            self._requests.append(self._message(text) if text else self._route.request())
        except BadJson as error:
            raise CallEnded(Code.INVALID_ARGUMENT, str(error)) from None
        self._ended = True

    def first(self) -> Any:
        return self._requests[0]

    def _message(self, text: bytes) -> Any:
        message = from_json(self._route.request, text)
        size = message.ByteSize()
        if size > MESSAGE_BYTES_MAX:
            problem = f"grpc: received message larger than max ({size} vs. {MESSAGE_BYTES_MAX})"
            raise CallEnded(Code.RESOURCE_EXHAUSTED, problem)
        return message

    async def _read_more(self) -> None:
        """Read until there is a request, or the body ends."""
        while not self._requests and not self._ended:
            part = await self._exchange.read()
            if part is None:
                self._ended = True
                values = [self._values.rest()] if self._values.rest() else []
            else:
                values = self._values.feed(part)
                if len(self._values) > BODY_BYTES_MAX:
                    raise BodyTooLarge
            self._requests += [self._message(text) for text in values]

    async def read(self) -> bytes | None:
        """The next request. Invalid JSON ends them, as in etcd: the answers continue."""
        try:
            await self._read_more()
        except (BadJson, BodyTooLarge):
            self._ended = True
        if not self._requests:
            return None
        data: bytes = self._requests.pop(0).SerializeToString()
        return data

    async def write(self, message: bytes) -> None:
        """Send one answer of several."""
        result = {"result": to_json(self._route.answer.FromString(message))}
        await self._exchange.send(msgspec.json.encode(result) + b"\n", JSON)

    def answer(self, message: bytes) -> None:
        """Send the only answer."""
        self._exchange.respond(200, msgspec.json.encode(to_json(self._route.answer.FromString(message))), JSON)


async def _direct(handler: Handler, request: Any) -> bytes:
    """Run a method that needs no task. The answer, also an error, waits until the state that it shows is durable."""
    assert handler.direct is not None
    try:
        answer: bytes = handler.direct(request).SerializeToString()
    except LeaseholdError:
        await _settled(handler)
        raise
    await _settled(handler)
    return answer


async def _settled(handler: Handler) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if handler.when_settled(partial(resolve, future)):
        await future


def _refuse(exchange: Exchange, route: Route, code: Code, message: str) -> None:
    status = _HTTP_STATUS.get(code, 500)
    if route.many_answers and exchange.begun:
        error = {
            "grpc_code": int(code),
            "http_code": status,
            "message": message,
            "http_status": HTTPStatus(status).phrase,
        }
        exchange.end_with(msgspec.json.encode({"error": error}))
        return
    body = {"error": message, "code": int(code), "message": message}
    exchange.respond(status, msgspec.json.encode(body), JSON)
