"""The metadata server of Mooncake's transfer engine: a small table over HTTP, as `mooncake_master` can serve it.

    GET, PUT, DELETE /metadata?key=KEY        404: no such key

It is kept in memory, as there: each process writes its own entries again when it starts.
"""

from __future__ import annotations

import socket
from typing import Final

from aiohttp import web

from leasehold.admin.bounds import BoundedListener

VALUE_BYTES_MAX: Final = 4 * 1024 * 1024
VALUES_BYTES_MAX: Final = 256 * 1024 * 1024  # of all of them
KEYS_MAX: Final = 100_000
CONNECTIONS_MAX: Final = 1_024
_NOT_FOUND: Final = "metadata not found"


class MetadataServer:
    """`start` on a listening socket, `close` at the end."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.values_bytes = 0
        self._doorkeeper: BoundedListener | None = None
        self._app = web.Application(client_max_size=VALUE_BYTES_MAX)
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
        self._doorkeeper = BoundedListener(sock, CONNECTIONS_MAX)
        self._app.middlewares.append(self._doorkeeper.middleware)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # it is set up
        self._doorkeeper.open(server)

    async def close(self) -> None:
        if self._doorkeeper is not None:
            await self._doorkeeper.close()
        await self._runner.cleanup()

    async def _get(self, request: web.Request) -> web.Response:
        value = self.values.get(_key(request))
        if value is None:
            return web.Response(status=404, text=_NOT_FOUND)
        return web.Response(body=value, content_type="application/json")

    async def _put(self, request: web.Request) -> web.Response:
        key, value = _key(request), await request.read()
        if key not in self.values and len(self.values) >= KEYS_MAX:
            return web.Response(status=507, text=f"the table is full ({KEYS_MAX} keys): delete some")
        values_bytes = self.values_bytes - len(self.values.get(key, b"")) + len(value)
        if values_bytes > VALUES_BYTES_MAX:
            return web.Response(status=507, text=f"the table is full ({VALUES_BYTES_MAX} bytes): delete some")
        self.values[key], self.values_bytes = value, values_bytes
        return web.Response(text="metadata updated")

    async def _delete(self, request: web.Request) -> web.Response:
        value = self.values.pop(_key(request), None)
        if value is None:
            return web.Response(status=404, text=_NOT_FOUND)
        self.values_bytes -= len(value)
        return web.Response(text="metadata deleted")

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="OK")


def _key(request: web.Request) -> str:
    key = request.query.get("key", "")
    if not key:
        raise web.HTTPBadRequest(text="Missing key parameter")
    return key
