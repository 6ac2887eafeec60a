"""The standard health service of gRPC, for probes and for clients that check it. A store that runs is serving."""

from __future__ import annotations

import asyncio

from leasehold.etcd.pb import health_pb2
from leasehold.mvcc.errors import Code
from leasehold.store.engine import Engine
from leasehold.store.server.dispatch import Methods, direct
from leasehold.store.server.http2.streams import CallEnded, Handler, Message, StreamCall, parse

_STATUS = health_pb2.HealthCheckResponse
HEALTH_CHECK = b"/grpc.health.v1.Health/Check"
_WHOLE_SERVER = ""  # the only service name that etcd reports on


def health_service(engine: Engine) -> Methods:
    """Method -> handler."""

    def check(m: Message) -> Message:
        if m.service != _WHOLE_SERVER:
            raise CallEnded(Code.NOT_FOUND, "unknown service")
        engine.check_open()
        return _STATUS(status=_STATUS.SERVING)

    async def watch(call: StreamCall) -> None:
        data = await call.read()
        if data is None:
            raise CallEnded(Code.INTERNAL, "grpc: no request was sent")
        known = parse(health_pb2.HealthCheckRequest, data).service == _WHOLE_SERVER
        status = _STATUS.SERVING if known else _STATUS.SERVICE_UNKNOWN
        await call.write(_STATUS(status=status).SerializeToString())
        await asyncio.Event().wait()  # a store that fails exits, so the status never changes

    return {
        "Check": direct(engine, health_pb2.HealthCheckRequest, check),
        "Watch": Handler(stream=watch),
    }
