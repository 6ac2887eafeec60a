"""The dashboard's files, the headers that protect it, and its session.

The page may load nothing but its own files, and may connect only to this port and to the admin ports of the registered
nodes (Content-Security-Policy): so it continues with another node when its own dies. Those nodes accept it by the same
rule (CORS), because its origin is the address of a registered node.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import Final

import msgspec
from aiohttp import web
from msgspec import Struct, field

from leasehold.admin.access import COMMAND_HEADER, SESSION_S, AccessDenied
from leasehold.admin.guard import Guard, body_of, session_cookie
from leasehold.base.decoding import UNDECODABLE
from leasehold.runtime.clock import wall_us

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGE: Final = "index.html"


class StaticFile(Struct, frozen=True):
    """One file, in memory: there are few, and they are small."""

    body: bytes
    content_type: str


def load_files() -> dict[str, StaticFile]:
    """Every file of the dashboard, by name."""
    folder = resources.files("leasehold.admin") / "static"
    return {
        file.name: StaticFile(file.read_bytes(), _TYPES[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in _TYPES
    }


def security_policy(peers: Iterable[str], scheme: str) -> str:
    """The Content-Security-Policy of the page."""
    connect = " ".join(["'self'", *(f"{scheme}://{peer}" for peer in sorted(set(peers)))])
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class Session(Struct, frozen=True):
    """The body of a request that signs in: with a token, or with the pass of another node."""

    token: str = ""
    given_pass: str = field(default="", name="pass")


class Pages:
    """Handlers of the dashboard. `guard` knows the caller and the registered nodes."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._files = load_files()

    async def page(self, request: web.Request) -> web.Response:
        """`/`: without the role `read`, the addresses of the nodes are not listed either."""
        file = self._files[PAGE]
        peers = self._guard.peers() if self._guard.may_read(request) else ()
        answer = web.Response(body=file.body, headers={"Content-Type": file.content_type})
        answer.headers["Content-Security-Policy"] = security_policy(peers, request.scheme)
        return answer

    async def file(self, request: web.Request) -> web.Response:
        """`/static/NAME`."""
        file = self._files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        return web.Response(body=file.body, headers={"Content-Type": file.content_type})

    async def sign_in(self, request: web.Request) -> web.Response:
        """Exchange a token or a pass for a cookie that scripts cannot read and other sites cannot send."""
        try:
            sent = msgspec.json.decode(await body_of(request), type=Session)
        except UNDECODABLE as error:
            raise web.HTTPBadRequest(text=f"the body must be {{'token': TOKEN}}: {error}") from None
        policy, now_s = self._guard.policy(), wall_us() // 1_000_000
        value = (
            policy.exchange_pass(sent.given_pass, now_s) if sent.given_pass else policy.open_session(sent.token, now_s)
        )
        answer = web.json_response({"signed_in": True})
        answer.set_cookie(
            session_cookie(request), value, max_age=SESSION_S, httponly=True, samesite="Strict", secure=request.secure
        )
        return answer

    async def make_pass(self, request: web.Request) -> web.Response:
        """A pass with which the page signs in to the other nodes, without asking for the token again."""
        return web.json_response({"pass": self._guard.make_pass(request)})

    async def sign_out(self, request: web.Request) -> web.Response:
        answer = web.json_response({"signed_in": False})
        answer.del_cookie(session_cookie(request), httponly=True, samesite="Strict", secure=request.secure)
        return answer

    async def preflight(self, request: web.Request) -> web.Response:
        """The request of a browser whether a page of another node may send a command here."""
        if not self._guard.allows_page(request.headers.get("Origin", ""), request):
            raise AccessDenied("pages of this origin may not send commands", known=True)
        return web.Response(
            status=204,
            headers={
                "Access-Control-Allow-Methods": "GET, POST, DELETE",
                "Access-Control-Allow-Headers": f"Content-Type, {COMMAND_HEADER}",
                "Access-Control-Max-Age": "60",
            },
        )

    async def protect(self, request: web.Request, answer: web.StreamResponse) -> None:
        """Headers of every answer: called by aiohttp before it sends one."""
        headers = answer.headers
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["X-Frame-Options"] = "DENY"
        headers.setdefault("Cache-Control", "no-cache")
        origin = request.headers.get("Origin")
        if origin is not None and self._guard.allows_page(origin, request):
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Allow-Credentials"] = "true"
            headers["Vary"] = "Origin"
