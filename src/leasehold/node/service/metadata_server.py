"""The metadata server of Mooncake's transfer engine: a small table over HTTP, as `mooncake_master` can serve it.

    GET, PUT, DELETE /metadata?key=KEY        404: no such key

The table is in the coordination store (`metadata_table.py`). A second process that registers under the name of a live
one is refused with 400, as by the C++ server; the entry of a dead one is replaced immediately (`metadata_owners.py`).

A refused transfer engine deletes the key that it could not write, as it would delete its own. With the C++ server the
live process is then lost to its readers. Here such a delete is refused with 409: shortly after a refusal of the same
host, and for names under which a live client lends segments.
"""

from __future__ import annotations

import socket
from typing import Final

import structlog
from aiohttp import web

from leasehold.admin.bounds import BoundedListener, Handler
from leasehold.admin.guard import wrong_host
from leasehold.base.errors import InvalidArgument, LeaseholdError
from leasehold.base.hosts import HostPolicy
from leasehold.base.limits import metadata_connections_max, metadata_value_bytes_max
from leasehold.node.service.metadata_owners import OwnerCheck, registration_of
from leasehold.node.service.metadata_table import MetadataTable, TableFull
from leasehold.runtime.clock import BootClock
from leasehold.runtime.tls import Tls

log = structlog.get_logger("leasehold.metadata")

_NOT_FOUND: Final = "metadata not found"
_DUPLICATE: Final = "Duplicate rpc_meta key not allowed"
_NOT_YOURS: Final = "not deleted: a live process has this name"
_REFUSED_RECENTLY_MS: Final = 10_000
_REFUSED_KEPT_MAX: Final = 10_000
_REGISTER_ATTEMPTS: Final = 3  # each fails only if another process registers the same name meanwhile


class MetadataServer:
    """`start` on a listening socket, `close` at the end."""

    def __init__(
        self, table: MetadataTable, owners: OwnerCheck, hosts: HostPolicy | None = None, tls: Tls | None = None
    ) -> None:
        self._tls = tls
        self._hosts = hosts or HostPolicy()
        self._table = table
        self._owners = owners
        self._clock = BootClock()
        self._refused_ms: dict[tuple[str, str], int] = {}  # by host and name, the oldest first
        self._doorkeeper: BoundedListener | None = None
        self._app = web.Application(
            client_max_size=metadata_value_bytes_max, middlewares=[_errors_as_text, self._check_host]
        )
        self._app.add_routes(
            [
                web.get("/metadata", self._get),
                web.put("/metadata", self._put),
                web.delete("/metadata", self._delete),
                web.get("/health", self._health),
            ]
        )
        self._runner = web.AppRunner(self._app, access_log=None, handle_signals=False)

    async def start(self, sock: socket.socket) -> None:
        self._doorkeeper = BoundedListener(sock, metadata_connections_max, self._tls)
        self._app.middlewares.append(self._doorkeeper.middleware)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # it is set up
        self._doorkeeper.open(server)

    async def close(self) -> None:
        if self._doorkeeper is not None:
            await self._doorkeeper.close()
        await self._runner.cleanup()

    @web.middleware
    async def _check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a browser that a foreign page has sent here under its own name (DNS rebinding)."""
        host = request.headers.get("Host")
        if not self._hosts.allows(host):
            raise web.HTTPMisdirectedRequest(text=wrong_host(host or ""))
        return await handler(request)

    async def _get(self, request: web.Request) -> web.Response:
        found = await self._table.find(_key(request))
        if found is None:
            return web.Response(status=404, text=_NOT_FOUND)
        return web.Response(body=found.value, content_type="application/json")

    async def _put(self, request: web.Request) -> web.Response:
        key, value = _key(request), await request.read()
        registration = registration_of(key)
        if registration is not None and registration.rpc_key == key:
            return await self._register(request, registration.name, key, value)
        await self._table.put(key, value)
        return web.Response(text="metadata updated")

    async def _register(self, request: web.Request, name: str, key: str, value: bytes) -> web.Response:
        """Write the address of a transfer engine, unless a live one has this name."""
        for _ in range(_REGISTER_ATTEMPTS):
            found = await self._table.find(key)
            if found is not None and found.value == value:
                return web.Response(text="metadata unchanged")
            if found is not None and await self._owners.alive(name, found.value):
                log.warning("a second process with the name of a live one was refused", name=name, host=request.remote)
                self._remember_refusal(request, name)
                return web.Response(status=400, text=_DUPLICATE)
            if await self._table.replace(key, value, found.revision if found is not None else 0):
                return web.Response(text="metadata updated")
        return web.Response(status=400, text=_DUPLICATE)

    async def _delete(self, request: web.Request) -> web.Response:
        key = _key(request)
        registration = registration_of(key)
        if registration is not None and await self._is_foreign(request, registration.name):
            return web.Response(status=409, text=_NOT_YOURS)
        if not await self._table.delete(key):
            return web.Response(status=404, text=_NOT_FOUND)
        return web.Response(text="metadata deleted")

    def _remember_refusal(self, request: web.Request, name: str) -> None:
        host = request.remote or ""
        self._refused_ms.pop((host, name), None)
        self._refused_ms[host, name] = self._clock.now_ms()
        if len(self._refused_ms) > _REFUSED_KEPT_MAX:
            del self._refused_ms[next(iter(self._refused_ms))]

    async def _is_foreign(self, request: web.Request, name: str) -> bool:
        """Whether a delete comes from a process that was refused this name, not from its owner."""
        refused_ms = self._refused_ms.get((request.remote or "", name))
        if refused_ms is not None and self._clock.now_ms() - refused_ms < _REFUSED_RECENTLY_MS:
            return True
        return await self._owners.lends(name)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="OK")


def _key(request: web.Request) -> str:
    key = request.query.get("key", "")
    if not key:
        raise web.HTTPBadRequest(text="Missing key parameter")
    return key


@web.middleware
async def _errors_as_text(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except TableFull as error:
        return web.Response(status=507, text=str(error))
    except InvalidArgument as error:
        return web.Response(status=400, text=str(error))
    except LeaseholdError as error:  # the store did not answer
        return web.Response(status=503, text=str(error))
