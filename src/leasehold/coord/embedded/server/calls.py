"""What all services share: taking a call's bytes in, and telling errors as etcd tells them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError

from leasehold.base.errors import InvalidArgument, LeaseholdError, Unavailable, UnknownOutcome
from leasehold.base.limits import KIB, store_request_bytes_max
from leasehold.coord.embedded.engine import Engine
from leasehold.mvcc import Store
from leasehold.mvcc.errors import StoreError

Message = Any
Context = grpc.aio.ServicerContext[Any, Any]
Methods: TypeAlias = "dict[str, grpc.RpcMethodHandler[Any, Any]]"  # of one service, by name
T = TypeVar("T")

# What etcd lets in: a request and its envelope. Larger ones are refused before they are read.
MESSAGE_BYTES_MAX = store_request_bytes_max + 512 * KIB
_STATUS = {code.value[0]: code for code in grpc.StatusCode}


def run(engine: Engine, call: Callable[[Store, int], T]) -> T:
    """Do one call on the store; `await engine.settled()` before its answer leaves."""
    with engine.lock:
        result = call(engine.store, engine.enter())
        engine.leave()
    return result


async def refuse(context: Context, error: BaseException) -> NoReturn:
    """End the call with the code and message that etcd gives."""
    if isinstance(error, StoreError):
        await context.abort(_STATUS[int(error.code)], error.message)
    if isinstance(error, (Unavailable, UnknownOutcome)):
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
    if isinstance(error, InvalidArgument):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    await context.abort(grpc.StatusCode.UNKNOWN, str(error))
    raise AssertionError("abort always raises")


async def parse(kind: Any, data: bytes, context: Context) -> Message:
    """A request's message, refused as etcd's gRPC does if it is too large or none at all."""
    if len(data) > MESSAGE_BYTES_MAX:
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"grpc: received message larger than max ({len(data)} vs. {MESSAGE_BYTES_MAX})",
        )
    try:
        return kind.FromString(data)
    except DecodeError as error:
        await context.abort(grpc.StatusCode.INTERNAL, f"grpc: error unmarshalling request: {error}")


Unary = Callable[[Any, Context], Awaitable[Message]]


def unary(
    kind: Any, behaviour: Unary, *, refuse: Callable[[Context, BaseException], Awaitable[NoReturn]] = refuse
) -> grpc.RpcMethodHandler[bytes, Message]:
    """A handler for one request and one answer; what the behaviour raises becomes the call's status."""

    async def handle(data: bytes, context: Context) -> bytes:
        request = await parse(kind, data, context)
        try:
            answer = await behaviour(request, context)
        except LeaseholdError as error:
            await refuse(context, error)
        done: bytes = answer.SerializeToString()
        return done

    return grpc.unary_unary_rpc_method_handler(handle)


async def refuse_plainly(context: Context, error: BaseException) -> NoReturn:
    """End the call with the words only: etcd's lock and election services lose the codes of what they pass on."""
    await context.abort(grpc.StatusCode.UNKNOWN, str(error))
    raise AssertionError("abort always raises")
