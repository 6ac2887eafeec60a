"""The admin port. Probes read the HTTP status code; people and programs read the JSON body."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from leasehold.admin.bounds import BoundedListener
from leasehold.admin.metrics import render
from leasehold.admin.status import NodeFace, NodeStatus
from leasehold.base.errors import LeaseholdError, Unavailable

HISTORY_LIMIT_MAX = 10_000
BODY_BYTES_MAX = 64 * 1024
BODY_TIMEOUT_S = 10.0
SHUTDOWN_S = 1.0  # a worker that stops waits this long for responses in progress
LARGE_ANSWERS_MAX = 4  # snapshots and exports in progress: each is in memory until the client has read all of it
FACE: web.AppKey[NodeFace] = web.AppKey("face")
LARGE: web.AppKey[asyncio.Semaphore] = web.AppKey("large")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _probe(name: str, judge: Callable[[NodeStatus], bool]) -> web.RouteDef:
    """200 if `judge` returns true, else 503; the body contains the reason."""

    async def handler(request: web.Request) -> web.Response:
        status = request.app[FACE].status()
        body = {"name": status.name, "role": status.role, "reason": status.reason, "epoch": status.epoch}
        return _json(body, 200 if judge(status) else 503)

    return web.get(name, handler)


async def _metrics(request: web.Request) -> web.Response:
    face = request.app[FACE]
    body, content_type = render(face.status(), face.measures())
    return web.Response(body=body, headers={"Content-Type": content_type})


async def _status(request: web.Request) -> web.Response:
    return _json(request.app[FACE].status())


async def _cluster(request: web.Request) -> web.Response:
    return _json(await request.app[FACE].cluster())


async def _history(request: web.Request) -> web.Response:
    try:
        limit = int(request.query.get("limit", "100"))
    except ValueError:
        return _json({"error": f"limit = {request.query['limit']!r} is not a number"}, 400)
    return _json(await request.app[FACE].history(max(1, min(limit, HISTORY_LIMIT_MAX))))


async def _switchover(request: web.Request) -> web.Response:
    outcome = await request.app[FACE].switchover(await _field(request, "target"))
    return _json(outcome, 200 if outcome.done else 409)


async def _force(request: web.Request) -> web.Response:
    outcome = await request.app[FACE].force()
    return _json(outcome, 200 if outcome.done else 409)


async def _pause(request: web.Request) -> web.Response:
    outcome = await request.app[FACE].pause(await _field(request, "reason"))
    return _json(outcome, 200 if outcome.done else 409)


async def _resume(request: web.Request) -> web.Response:
    outcome = await request.app[FACE].resume()
    return _json(outcome, 200 if outcome.done else 409)


async def _snapshot(request: web.Request) -> web.StreamResponse:
    return await _large(request, request.app[FACE].snapshot)


async def _export(request: web.Request) -> web.StreamResponse:
    return await _large(request, request.app[FACE].export)


async def _large(request: web.Request, make: Callable[[], Awaitable[bytes | None]]) -> web.StreamResponse:
    """Send a response as large as the index. Only a few may be in progress until clients have read them."""
    slots = request.app[LARGE]
    if slots.locked():
        raise Unavailable(f"{LARGE_ANSWERS_MAX} snapshots or exports are being sent: try again when one has finished")
    async with slots:
        raw = await make()
        if raw is None:
            return _json({"error": "this node has no complete snapshot yet"}, 404)
        if request.method == "HEAD":
            return web.Response(headers={"Content-Length": str(len(raw))})
        answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        answer.content_length = len(raw)
        await answer.prepare(request)
        await answer.write(raw)
        await answer.write_eof()
        return answer


async def _field(request: web.Request, name: str) -> str:
    """One text field of a small JSON body, or ""."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            raw = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the request body did not arrive within {BODY_TIMEOUT_S:g} s") from None
    if not raw:
        return ""
    try:
        value = msgspec.json.decode(raw, type=dict[str, str]).get(name, "")
    except msgspec.MsgspecError as error:
        raise web.HTTPBadRequest(text=f"the body must be a JSON object of strings: {error}") from None
    return value[:1000]


@web.middleware
async def _reject_web_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reject a command with an `Origin` header, which every browser sends: this port serves no web pages.

    So a foreign page in an operator's browser cannot pause the cluster or move its leadership (cross-site request
    forgery), not even if its own host name resolves to this address (DNS rebinding).
    """
    if request.method not in ("GET", "HEAD") and "Origin" in request.headers:
        raise web.HTTPForbidden(text="commands from web pages are rejected: use `leasehold` or curl")
    return await handler(request)


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except LeaseholdError as error:
        return _json({"error": str(error)}, 503)
    except web.HTTPMethodNotAllowed as error:
        answer = _json({"error": f"{request.path} accepts {', '.join(sorted(error.allowed_methods))}"}, 405)
        answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except web.HTTPNotFound:
        return _json({"error": f"unknown path {request.path[:100]!r}", "paths": sorted(PATHS)}, 404)
    except web.HTTPException as error:
        return _json({"error": error.text or error.reason}, error.status)


ROUTES = (
    _probe("/health", lambda status: True),
    _probe("/ready", lambda status: status.ready),
    _probe("/primary", lambda status: status.may_serve),
    _probe("/standby", lambda status: status.ready and not status.may_serve),
    web.get("/metrics", _metrics),
    web.get("/api/status", _status),
    web.get("/api/cluster", _cluster),
    web.get("/api/history", _history),
    web.get("/api/snapshot", _snapshot),
    web.get("/api/export", _export),
    web.post("/api/switchover", _switchover),
    web.post("/api/force", _force),
    web.post("/api/pause", _pause),
    web.post("/api/resume", _resume),
)
PATHS = tuple(route.path for route in ROUTES)


class AdminServer:
    """The admin application of one node, on a socket that already listens."""

    def __init__(self, face: NodeFace, sock: socket.socket) -> None:
        self._listener = BoundedListener(sock)
        app = web.Application(
            middlewares=[self._listener.middleware, _errors_as_json, _reject_web_pages],
            client_max_size=BODY_BYTES_MAX,
        )
        app[FACE] = face
        app[LARGE] = asyncio.Semaphore(LARGE_ANSWERS_MAX)
        app.add_routes(ROUTES)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S)

    async def start(self) -> None:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # set by `setup`
        self._listener.open(server)

    async def close(self) -> None:
        await self._listener.close()
        await self._runner.cleanup()
