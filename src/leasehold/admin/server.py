"""The admin port. Probes read the HTTP status code; people and programs read the JSON body."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
from aiohttp import web

from leasehold.admin import mooncake_drains, mooncake_metrics, mooncake_quotas, mooncake_routes
from leasehold.admin.access import ANONYMOUS, Access, AccessDenied, AccessPolicy
from leasehold.admin.bounds import BoundedListener, Handler
from leasehold.admin.guard import Guard, Route, fields_of, json_answer, session_cookie
from leasehold.admin.live import LiveFace, LiveHub
from leasehold.admin.metrics import render
from leasehold.admin.mooncake_routes import MOONCAKE
from leasehold.admin.mooncake_state import MooncakeFace, MooncakeRefused
from leasehold.admin.pages import Pages
from leasehold.admin.samples import KEPT
from leasehold.admin.status import NodeFace, NodeStatus
from leasehold.base.errors import LeaseholdError, Unavailable
from leasehold.base.hosts import HostPolicy
from leasehold.runtime.tls import Tls

HISTORY_LIMIT_MAX = 10_000
BODY_BYTES_MAX = 64 * 1024
SHUTDOWN_S = 1.0  # a worker that stops waits this long for responses in progress
LARGE_ANSWERS_MAX = 4  # snapshots and exports in progress: each is in memory until the client has read all of it


class AdminFace(NodeFace, LiveFace, Protocol):
    """Everything that the admin port shows of a node, and the orders that it takes."""


FACE: web.AppKey[AdminFace] = web.AppKey("face")
GUARD: web.AppKey[Guard] = web.AppKey("guard")
HUB: web.AppKey[LiveHub] = web.AppKey("hub")
PAGES: web.AppKey[Pages] = web.AppKey("pages")
LARGE: web.AppKey[asyncio.Semaphore] = web.AppKey("large")
PATHS: web.AppKey[Sequence[str]] = web.AppKey("paths")


def _probe(name: str, judge: Callable[[NodeStatus], bool]) -> Route:
    """200 if `judge` returns true, else 503; the body contains the reason."""

    async def handler(request: web.Request) -> web.Response:
        status = request.app[FACE].status()
        body = {"name": status.name, "role": status.role, "reason": status.reason, "epoch": status.epoch}
        return json_answer(body, 200 if judge(status) else 503)

    return Route("GET", name, Access.OPEN, handler)


async def _health(request: web.Request) -> web.Response:
    """200 while the process answers. The body also has the fields of the C++ master, with its names of the roles."""
    status, state = request.app[FACE].status(), request.app[MOONCAKE].runtime_state()
    body = {"status": "ok", "name": status.name, "reason": status.reason, "epoch": status.epoch}
    if status.snapshot_problem:  # a warning, not a failure: a restart would not free the disk
        body["warning"] = f"snapshots cannot be written: {status.snapshot_problem}"
    return json_answer({**body, **msgspec.structs.asdict(state)})


async def _metrics(request: web.Request) -> web.Response:
    """Our own metrics, then those of the C++ master."""
    face = request.app[FACE]
    body, content_type = render(face.status(), face.measures())
    body += mooncake_metrics.render(request.app[MOONCAKE].numbers())
    return web.Response(body=body, headers={"Content-Type": content_type})


async def _status(request: web.Request) -> web.Response:
    return json_answer(request.app[FACE].status())


async def _cluster(request: web.Request) -> web.Response:
    return json_answer(await request.app[FACE].cluster())


async def _history(request: web.Request) -> web.Response:
    try:
        limit = int(request.query.get("limit", "100"))
    except ValueError:
        return json_answer({"error": f"limit = {request.query['limit']!r} is not a number"}, 400)
    return json_answer(await request.app[FACE].history(max(1, min(limit, HISTORY_LIMIT_MAX))))


async def _samples(request: web.Request) -> web.Response:
    try:
        count = int(request.query.get("count", KEPT))
    except ValueError:
        return json_answer({"error": f"count = {request.query['count']!r} is not a number"}, 400)
    return json_answer(request.app[FACE].samples()[-max(1, count) :])


async def _live(request: web.Request) -> web.StreamResponse:
    return await request.app[HUB].serve(request)


async def _page(request: web.Request) -> web.Response:
    return await request.app[PAGES].page(request)


async def _static_file(request: web.Request) -> web.Response:
    return await request.app[PAGES].file(request)


async def _sign_in(request: web.Request) -> web.Response:
    return await request.app[PAGES].sign_in(request)


async def _make_pass(request: web.Request) -> web.Response:
    return await request.app[PAGES].make_pass(request)


async def _sign_out(request: web.Request) -> web.Response:
    return await request.app[PAGES].sign_out(request)


async def _whoami(request: web.Request) -> web.Response:
    """Name, address and role of the caller: for people who set up tokens, and for pages.

    `session`: the caller is known by its cookie. `tokens`: there is something to sign in to.
    """
    guard = request.app[GUARD]
    identity = await guard.identity(request)
    return json_answer(
        {
            "name": identity.name,
            "address": identity.address,
            "role": identity.access.name.lower(),
            "session": identity.name != ANONYMOUS and session_cookie(request) in request.cookies,
            "tokens": guard.policy().configured,
        }
    )


async def _switchover(request: web.Request) -> web.Response:
    outcome = await request.app[FACE].switchover((await fields_of(request)).get("target", ""))
    return json_answer(outcome, 200 if outcome.done else 409)


async def _force(request: web.Request) -> web.Response:
    outcome = await request.app[FACE].force()
    return json_answer(outcome, 200 if outcome.done else 409)


async def _feature_level(request: web.Request) -> web.Response:
    outcome = await request.app[FACE].switch_level((await fields_of(request)).get("level", ""))
    return json_answer(outcome, 200 if outcome.done else 409)


async def _pause(request: web.Request) -> web.Response:
    outcome = await request.app[FACE].pause((await fields_of(request)).get("reason", ""))
    return json_answer(outcome, 200 if outcome.done else 409)


async def _resume(request: web.Request) -> web.Response:
    outcome = await request.app[FACE].resume()
    return json_answer(outcome, 200 if outcome.done else 409)


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
            return json_answer({"error": "this node has no complete snapshot yet"}, 404)
        if request.method == "HEAD":
            return web.Response(headers={"Content-Length": str(len(raw))})
        answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        answer.content_length = len(raw)
        await answer.prepare(request)
        await answer.write(raw)
        await answer.write_eof()
        return answer


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except AccessDenied as error:
        answer = json_answer({"error": str(error)}, 403 if error.known else 401)
        if not error.known:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
    except MooncakeRefused as error:
        return mooncake_routes.refused(error)
    except LeaseholdError as error:
        return json_answer({"error": str(error)}, 503)
    except web.HTTPMethodNotAllowed as error:
        methods = sorted(set(error.allowed_methods) - {"OPTIONS"})  # OPTIONS is for browsers only
        answer = json_answer({"error": f"{request.path} accepts {', '.join(methods)}"}, 405)
        answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except web.HTTPNotFound:
        return json_answer({"error": f"unknown path {request.path[:100]!r}", "paths": request.app[PATHS]}, 404)
    except web.HTTPException as error:
        return json_answer({"error": error.text or error.reason}, error.status)


ROUTES = (
    Route("GET", "/health", Access.OPEN, _health),
    _probe("/ready", lambda status: status.ready),
    _probe("/primary", lambda status: status.may_serve),
    _probe("/standby", lambda status: status.ready and not status.may_serve),
    Route("GET", "/metrics", Access.READ, _metrics),
    Route("GET", "/api/status", Access.READ, _status),
    Route("GET", "/api/cluster", Access.READ, _cluster),
    Route("GET", "/api/history", Access.READ, _history),
    Route("GET", "/api/samples", Access.READ, _samples),
    Route("GET", "/api/live", Access.READ, _live),
    Route("GET", "/api/snapshot", Access.READ, _snapshot),
    Route("GET", "/api/export", Access.READ, _export),
    Route("GET", "/api/whoami", Access.OPEN, _whoami),
    Route("GET", "/", Access.OPEN, _page),
    Route("GET", "/static/{name}", Access.OPEN, _static_file),
    Route("POST", "/api/session", Access.OPEN, _sign_in),
    Route("POST", "/api/session/pass", Access.READ, _make_pass),
    Route("DELETE", "/api/session", Access.OPEN, _sign_out),
    Route("POST", "/api/switchover", Access.OPERATE, _switchover),
    Route("POST", "/api/force", Access.OPERATE, _force),
    Route("POST", "/api/feature-level", Access.OPERATE, _feature_level),
    Route("POST", "/api/pause", Access.OPERATE, _pause),
    Route("POST", "/api/resume", Access.OPERATE, _resume),
    *mooncake_routes.ROUTES,
    *mooncake_quotas.ROUTES,
    *mooncake_drains.ROUTES,
)


class AdminServer:
    """The admin application of one node, on a socket that already listens."""

    def __init__(
        self,
        face: AdminFace,
        mooncake: MooncakeFace,
        sock: socket.socket,
        policy: Callable[[], AccessPolicy] = AccessPolicy,
        hosts: HostPolicy | None = None,
        tls: Tls | None = None,
        more: Sequence[Route] = (),
    ) -> None:
        """`more`: routes of parts that have their own interface to the node."""
        self._listener = BoundedListener(sock, tls=tls, certificate_optional=True)
        app = web.Application(middlewares=[self._listener.middleware, _errors_as_json], client_max_size=BODY_BYTES_MAX)
        app[FACE] = face
        app[LARGE] = asyncio.Semaphore(LARGE_ANSWERS_MAX)
        app[GUARD] = guard = Guard(policy, hosts or HostPolicy(), face, face.peers)
        app[HUB] = self._hub = LiveHub(face)
        app[PAGES] = pages = Pages(guard)
        routes = (*ROUTES, *more)
        app[PATHS] = sorted({route.path for route in routes})
        app.add_routes([*guard.routes(routes), web.options("/api/{path:.*}", pages.preflight)])
        app.on_response_prepare.append(pages.protect)
        mooncake_routes.install(app, mooncake)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S)

    async def start(self) -> None:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # set by `setup`
        self._listener.open(server)

    async def close(self) -> None:
        await self._hub.close()
        await self._listener.close()
        await self._runner.cleanup()
