"""The routes of an HTTP port, and the checks in front of them. Every route states the access that it needs.

The checks, in this order: the `Host` header (DNS rebinding), the caller's role, and for a command the `Origin` and
`COMMAND_HEADER` (cross-site request forgery). An order is recorded before its handler runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import unquote_plus

import msgspec
from aiohttp import web
from msgspec import Struct

from leasehold.admin.access import (
    COMMAND_HEADER,
    FORWARDING_PROGRAMS,
    Access,
    AccessDenied,
    AccessPolicy,
    Caller,
    CallerIdentity,
    LocalProcess,
    Order,
    OrderRecorder,
    came_directly,
)
from leasehold.admin.bounds import Handler
from leasehold.base.decoding import UNDECODABLE
from leasehold.base.hosts import HostPolicy
from leasehold.base.text import printable
from leasehold.runtime.clock import wall_us
from leasehold.runtime.peer_process import peer_process
from leasehold.runtime.tls import certificate_names

BODY_TIMEOUT_S: Final = 10.0
DETAIL_CHARACTERS_MAX: Final = 200


class Route(Struct, frozen=True):
    """One path. `OPERATE` routes are orders: recorded in the history before the handler runs.

    `pages`: whether a page served by this port may call it. Otherwise a command with an `Origin` is refused, and
    `COMMAND_HEADER` is not required: for paths that other programs define.
    """

    method: str
    path: str
    access: Access
    handler: Handler
    pages: bool = True


def json_answer(value: object, status: int = 200) -> web.Response:
    """The usual answer of a route."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


class Guard:
    """Wraps the handlers of a port. `policy` is called for each request: tokens may be replaced at any time."""

    def __init__(
        self,
        policy: Callable[[], AccessPolicy],
        hosts: HostPolicy,
        recorder: OrderRecorder,
        peers: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`peers` returns the admin addresses of the registered nodes, whose pages may send commands too."""
        self.policy = policy
        self._hosts = hosts
        self.peers = peers
        self._recorder = recorder
        self.denied = 0  # requests refused for want of a role
        self.foreign = 0  # requests refused because of their host or origin

    def routes(self, routes: Sequence[Route]) -> list[web.RouteDef]:
        """The routes for aiohttp, each behind its checks. A GET route answers HEAD too."""
        made = []
        for route in routes:
            add = web.get if route.method == "GET" else _adder(route.method)
            made.append(add(route.path, self._guarded(route)))
        return made

    def _guarded(self, route: Route) -> Handler:
        if route.access is Access.OPEN and route.method == "GET":
            return route.handler  # probes: they need no name, no role and no time

        async def guarded(request: web.Request) -> web.StreamResponse:
            self._check_host(request)
            identity = await self._identify(route, request)
            if route.method != "GET":
                self._check_page(route, request)
            if route.access is Access.OPERATE:
                await self._recorder.record_order(await _order(route, request, identity))
            return await route.handler(request)

        return guarded

    def _check_host(self, request: web.Request) -> None:
        host = request.headers.get("Host")
        if not self._hosts.allows(host):
            self.foreign += 1
            raise web.HTTPMisdirectedRequest(text=wrong_host(host or ""))

    def _check_page(self, route: Route, request: web.Request) -> None:
        origin = request.headers.get("Origin")
        if origin is not None and not (route.pages and self.allows_page(origin, request)):
            self.foreign += 1
            raise web.HTTPForbidden(
                text=f"commands from pages of '{printable(origin, 200)}' are refused: use `leasehold`, or a page that "
                "this port serves"
            )
        if route.pages and COMMAND_HEADER not in request.headers:
            self.foreign += 1
            raise web.HTTPForbidden(text=f"a command needs the header '{COMMAND_HEADER}: 1'")

    def allows_page(self, origin: str, request: web.Request) -> bool:
        """Whether a page of this origin may read and send commands."""
        return self._hosts.allows_origin(origin, request.headers.get("Host"), self.peers())

    def make_pass(self, request: web.Request) -> str:
        """A pass to the other nodes for the caller's session."""
        return self.policy().make_pass(_caller(request, None))

    def may_read(self, request: web.Request) -> bool:
        """Whether the caller has the role `read`."""
        try:
            return self.policy().identify(_caller(request, None)).access >= Access.READ
        except AccessDenied:
            return False

    async def identity(self, request: web.Request) -> CallerIdentity:
        """Who sends this request, and what it may do."""
        policy = self.policy()
        local = None if policy.configured else await _local_process(request)
        return policy.identify(_caller(request, local))

    async def _identify(self, route: Route, request: web.Request) -> CallerIdentity:
        policy = self.policy()
        local = None
        if route.access is Access.OPERATE and not policy.configured:
            local = await _local_process(request)  # it reads /proc, so not for every read
        try:
            return policy.require(route.access, _caller(request, local), request.path)
        except AccessDenied:
            self.denied += 1
            raise


def wrong_host(host: str) -> str:
    """The error for a `Host` header that is not allowed."""
    return (
        f"this port is not addressed as '{printable(host, 200)}': use its IP address, or add the name to the setting "
        "allowed_hosts (--allowed-hosts)"
    )


def _adder(method: str) -> Callable[[str, Handler], web.RouteDef]:
    return lambda path, handler: web.route(method, path, handler)


def _caller(request: web.Request, local: LocalProcess | None) -> Caller:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    peer = _end(request, "peername")
    return Caller(
        address=f"{peer[0]}:{peer[1]}" if peer else "unknown",
        token=token.strip() if scheme.lower() == "bearer" else "",
        certificate=certificate_names(request.transport),
        session=request.cookies.get(session_cookie(request), ""),
        now_s=wall_us() // 1_000_000,
        local=local,
    )


def session_cookie(request: web.Request) -> str:
    """The name of this port's cookie. Browsers send a cookie to all ports of a host, so the name has the port."""
    own = _end(request, "sockname")
    return f"leasehold-{own[1] if own else 0}"


def _end(request: web.Request, name: str) -> tuple[str, int] | None:
    end = request.transport.get_extra_info(name) if request.transport is not None else None
    return (end[0], end[1]) if isinstance(end, tuple) and len(end) >= 2 else None


async def _local_process(request: web.Request) -> LocalProcess | None:
    """The process of this host that connected directly, or None."""
    peer, own = _end(request, "peername"), _end(request, "sockname")
    if peer is None or own is None or not came_directly(request.headers, peer[0], own[0]):
        return None
    process = await asyncio.to_thread(peer_process, peer, own)
    if process is None or not process.is_here or process.program in FORWARDING_PROGRAMS:
        return None
    return LocalProcess(process.uid, process.user, process.pid, process.program)


async def body_of(request: web.Request) -> bytes:
    """The whole body of a small request, received within the time limit."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the request body did not arrive within {BODY_TIMEOUT_S:g} s") from None


async def fields_of(request: web.Request) -> dict[str, str]:
    """The text fields of a small JSON body, without control characters."""
    raw = await body_of(request)
    if not raw:
        return {}
    try:
        found = msgspec.json.decode(raw, type=dict[str, str])
    except UNDECODABLE as error:
        raise web.HTTPBadRequest(text=f"the body must be a JSON object of strings: {error}") from None
    return {name: printable(value) for name, value in found.items()}


async def _order(route: Route, request: web.Request, identity: CallerIdentity) -> Order:
    body = (await body_of(request)).decode(errors="replace")
    detail = " ".join(part for part in (unquote_plus(request.query_string), body) if part)
    return Order(
        name=route.path.removeprefix("/api/").removeprefix("v1/").replace("/", " "),
        detail=printable(detail, DETAIL_CHARACTERS_MAX),
        by=identity.name,
        address=identity.address,
    )
