"""Orders to a single node, and their routes: restart, rebuild, log level; and removing a dead node from the list."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web
from msgspec import Struct

from leasehold.admin.access import Access
from leasehold.admin.guard import Route, fields_of, json_answer
from leasehold.admin.status import Operated


class LogLevel(Struct, frozen=True):
    node: str
    level: str
    configured: str  # by its settings; a restart returns to it


class NodeOrdersFace(Protocol):
    """The part of a running node for these routes."""

    def log_level(self) -> LogLevel: ...

    def set_log_level(self, level: str) -> Operated: ...

    async def restart(self, force: bool) -> Operated:
        """Stop the worker; its guardian starts another. A primary hands over first."""
        ...

    async def reinit(self) -> Operated:
        """As `restart`, without this node's snapshots: it copies the state of another node."""
        ...

    async def remove_node(self, name: str) -> Operated: ...


def node_order_routes(face: NodeOrdersFace) -> tuple[Route, ...]:
    async def level(_: web.Request) -> web.Response:
        return json_answer(face.log_level())

    async def set_level(request: web.Request) -> web.Response:
        return _answered(face.set_log_level((await fields_of(request)).get("level", "")))

    async def restart(request: web.Request) -> web.Response:
        return _answered(await face.restart((await fields_of(request)).get("force", "") == "true"))

    async def reinit(_: web.Request) -> web.Response:
        return _answered(await face.reinit())

    async def remove(request: web.Request) -> web.Response:
        return _answered(await face.remove_node((await fields_of(request)).get("name", "")))

    return (
        Route("GET", "/api/log-level", Access.READ, level),
        Route("POST", "/api/log-level", Access.OPERATE, set_level),
        Route("POST", "/api/restart", Access.OPERATE, restart),
        Route("POST", "/api/reinit", Access.OPERATE, reinit),
        Route("POST", "/api/nodes/remove", Access.OPERATE, remove),
    )


def _answered(outcome: Operated) -> web.Response:
    return json_answer(outcome, 200 if outcome.done else 409)
