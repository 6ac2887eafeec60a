"""Leasehold's own functions on the same framing and codec: declare them once, typed by msgspec Structs.

    class Read(Struct):
        offset: int
        length: int

    class Data(Struct):
        crc: int

    READ = method("leasehold::host::Read", Read, Data)

    server.serve(sock, {**implement(READ, handle_read), ...})   # handler: (connection, Read) -> Data, or awaitable
    answer = await channel.call(READ, Read(0, 4096), timeout_ms=1000)

Large bytes travel as the frame's attachment, uncopied by the codec: return `Reply(answer, attachment)`, read
`connection.attachment`, and on the client `channel.exchange(...)`. A server may also push to a connection, in a
frame of the kind `PUSH`, which the client's channel passes to a callback.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from leasehold.base.errors import InvariantBroken, LeaseholdError
from leasehold.wire.answers import Answer, Released
from leasehold.wire.body import pack, unpack
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.derive import wire_type
from leasehold.wire.frame import Err, function_id, response
from leasehold.wire.sending import refusal

Q = TypeVar("Q", bound=Struct)
A = TypeVar("A", bound=Struct)


class Method(Generic[Q, A]):
    """One function: its name gives the id, its Structs give the types on the wire."""

    def __init__(self, name: str, request: type[Q], answer: type[A]) -> None:
        self.name = name
        self.id = function_id(name)
        self.request = wire_type(request)
        self.answer = wire_type(answer)

    def pack_request(self, value: Q) -> bytes:
        return pack(self.request, value, literal=False)

    def unpack_request(self, body: bytes) -> Q:
        value: Q = unpack(self.request, body)
        return value

    def pack_answer(self, value: A) -> bytes:
        return pack(self.answer, value, literal=False)

    def unpack_answer(self, body: bytes) -> A:
        value: A = unpack(self.answer, body)
        return value

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Reply(Struct, Generic[A], frozen=True):
    """An answer with bytes attached."""

    answer: A
    attachment: bytes


def method(name: str, request: type[Q], answer: type[A]) -> Method[Q, A]:
    """Declare a function; `name` begins with `leasehold::`."""
    return Method(name, request, answer)


def implement(
    function: Method[Q, A],
    handler: Callable[[Connection, Q], A | Reply[A] | Awaitable[A | Reply[A]]],
) -> dict[int, Handler]:
    """Handlers for a server: an entry for `Server.serve`.

    The handler returns the answer, or an awaitable of it. A `LeaseholdError` that it raises reaches the caller as
    `RpcRefused` with the error's name and text; any other error is a bug and is logged. For functions that show no
    journalled state: their answers wait for no record.
    """

    def finish(seq: int, result: A | Reply[A]) -> Released:
        if isinstance(result, Reply):
            return Released(response(seq, function.pack_answer(result.answer), attachment=result.attachment))
        return Released(response(seq, function.pack_answer(result)))

    def finished(connection: Connection, seq: int, task: asyncio.Future[A | Reply[A]]) -> None:
        connection.sender.leave_flight()
        if task.cancelled():  # the connection is closed
            return
        error = task.exception()
        if error is None:
            try:
                connection.sender.send_later(finish(seq, task.result()))
            except Exception as unsendable:  # a value that its type cannot carry
                fail(connection, seq, unsendable)
        elif isinstance(error, InvariantBroken):
            connection.server.on_broken(error)
        elif isinstance(error, LeaseholdError):
            connection.sender.send_later(refused(connection, seq, error))
        elif isinstance(error, Exception):
            fail(connection, seq, error)

    def fail(connection: Connection, seq: int, error: Exception) -> None:
        connection.server.failed(connection, function.id, error)
        connection.sender.send_later(refusal(seq, Err.INTERRUPTED, "the call failed inside the server"))

    def refused(connection: Connection, seq: int, error: LeaseholdError) -> Released:
        kind = type(error).__name__
        connection.server.calls.failed(function.id, kind)
        return refusal(seq, Err.INTERRUPTED, f"{kind}: {error}")

    def handle(connection: Connection, seq: int, body: bytes) -> Answer:
        try:
            result = handler(connection, function.unpack_request(body))
        except InvariantBroken:
            raise
        except LeaseholdError as error:
            return refused(connection, seq, error)
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(result)
            connection.sender.enter_flight(task, function.id)
            task.add_done_callback(partial(finished, connection, seq))
            return None
        return finish(seq, result)

    return {function.id: handle}
