"""The server: all services of one store on one port."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leasehold.base.errors import InvalidArgument, ResourceUnavailable
from leasehold.base.hosts import HostPolicy
from leasehold.mvcc.errors import Code
from leasehold.runtime.reloaded import Reloaded
from leasehold.store.client import LocalClient
from leasehold.store.engine import Engine
from leasehold.store.server.auth import auth_service
from leasehold.store.server.clients import Clients
from leasehold.store.server.cluster import cluster_service
from leasehold.store.server.election import election_service
from leasehold.store.server.front import Front
from leasehold.store.server.gateway.gateway import Gateway
from leasehold.store.server.health import HEALTH_CHECK, health_service
from leasehold.store.server.http1.connection import Http1Connection
from leasehold.store.server.http1.site import Site
from leasehold.store.server.http2.connection import Connection
from leasehold.store.server.http2.streams import CallEnded, Handler, StreamCall
from leasehold.store.server.kv import kv_service
from leasehold.store.server.lease import lease_service
from leasehold.store.server.lock import lock_service
from leasehold.store.server.maintenance import maintenance_service
from leasehold.store.server.watch import watch_service


@dataclass(frozen=True)
class Tls:
    """PEM files, read again when they change. With `client_ca`, clients need a certificate of that authority."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.certificate, self.key, self.client_ca) if path is not None]


class StoreServer:
    """Serves an engine at `listen` (`host:port`; port 0 selects a free one) until stopped."""

    def __init__(self, engine: Engine, listen: str, tls: Tls | None = None) -> None:
        self._engine = engine
        self._tls = tls
        self._host, self._port = split_address(listen)
        # For the lock and election services, whose callers set deadlines.
        self._client = LocalClient(engine, timeout_s=3600)
        self._server: asyncio.Server | None = None
        self._clients = Clients(engine.settings)
        self._handlers: dict[bytes, Handler] = {}
        self._probe_handlers: dict[bytes, Handler] = {}  # of a connection beyond the limit
        hosts = HostPolicy([self._host, socket.gethostname(), *engine.settings.allowed_hosts])
        self._site = Site(engine, Gateway(self._handlers), hosts, self._clients)

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        """For `leasehold.connect`."""
        return f"{'etcds' if self._tls else 'etcd'}://{self.address}"

    async def start(self) -> None:
        """Listen and serve. Raises `ResourceUnavailable` if the address is unavailable."""
        loop = asyncio.get_running_loop()
        context = _reloading_context(self._tls) if self._tls else None
        try:
            self._server = await loop.create_server(
                self._accepted,
                self._host.strip("[]"),
                self._port,
                ssl=context,
                backlog=1024,
            )
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ResourceUnavailable(f"cannot listen on {self.address}: {why}; use another address") from None
        self._port = self._server.sockets[0].getsockname()[1]
        self._handlers.update(self._all_handlers())
        busy = Handler(stream=self._refuse)
        self._probe_handlers.update(dict.fromkeys(self._handlers, busy))
        self._probe_handlers[HEALTH_CHECK] = self._handlers[HEALTH_CHECK]
        self._clients.start()

    async def _refuse(self, _call: StreamCall) -> None:
        limit = self._clients.connections_max
        raise CallEnded(Code.UNAVAILABLE, f"leasehold: the store has {limit} connections, its limit")

    def _accepted(self) -> Front:
        site, clients = self._site, self._clients
        return Front(
            clients,
            lambda probes: Connection(self._probe_handlers if probes else self._handlers, clients),
            lambda probes: Http1Connection(site.serve_probes if probes else site.serve, clients),
        )

    def _all_handlers(self) -> dict[bytes, Handler]:
        scheme = "https" if self._tls else "http"
        services = {
            "etcdserverpb.KV": kv_service(self._engine),
            "etcdserverpb.Watch": watch_service(self._engine),
            "etcdserverpb.Lease": lease_service(self._engine),
            "etcdserverpb.Maintenance": maintenance_service(self._engine),
            "etcdserverpb.Cluster": cluster_service(self._engine, f"{scheme}://{self.address}"),
            "etcdserverpb.Auth": auth_service(self._engine),
            "grpc.health.v1.Health": health_service(self._engine),
            "v3lockpb.Lock": lock_service(self._client),
            "v3electionpb.Election": election_service(self._client),
        }
        return {
            f"/{service}/{method}".encode(): handler
            for service, methods in services.items()
            for method, handler in methods.items()
        }

    async def stop(self, grace_s: float = 1.0) -> None:
        """Accept no new calls, give running ones `grace_s`, then close. The engine stays open."""
        if self._server is not None:
            self._server.close()
            self._clients.stop()
            for connection in self._clients:
                connection.go_away()
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._quiet()
            for connection in self._clients:
                connection.close()
            self._server = None
        await self._client.close()

    async def _quiet(self) -> None:
        """Wait until no call is running."""
        # Called once per server: not worth an event that every call would have to set.
        while any(connection.calls for connection in self._clients):  # noqa: ASYNC110 -- see the line above
            await asyncio.sleep(0.01)


def split_address(listen: str) -> tuple[str, int]:
    """`"127.0.0.1:2379"` -> its host and port."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise InvalidArgument(f"{listen!r} is not an address to listen on; an example is 127.0.0.1:2379")
    return host, int(port)


def _reloading_context(tls: Tls) -> ssl.SSLContext:
    """A context whose handshakes use the present files. Open connections continue."""
    present = Reloaded(tls.files, lambda: _context(tls))
    context = present.value()

    def choose(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = present.value()

    context.sni_callback = choose  # called for every handshake, also without a server name
    return context


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except ssl.SSLError as error:
        files = ", ".join(str(path) for path in tls.files)
        raise InvalidArgument(f"TLS: no certificate with its key can be read from {files} ({error.reason})") from None
    return context
