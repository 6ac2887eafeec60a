"""The server: all services of one store on one port."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import grpc

from leasehold.base.errors import InvalidArgument, SettingError
from leasehold.base.limits import MIB
from leasehold.coord.embedded.client import LocalClient
from leasehold.coord.embedded.engine import Engine
from leasehold.coord.embedded.server.auth import auth_service
from leasehold.coord.embedded.server.cluster import cluster_service
from leasehold.coord.embedded.server.election import election_service
from leasehold.coord.embedded.server.kv import kv_service
from leasehold.coord.embedded.server.lease import lease_service
from leasehold.coord.embedded.server.lock import lock_service
from leasehold.coord.embedded.server.maintenance import maintenance_service
from leasehold.coord.embedded.server.watch import watch_service

# How much gRPC itself lets in. The services refuse what etcd refuses, in its words; this only bounds the memory.
_RECEIVE_BYTES_MAX = 32 * MIB

_OPTIONS = [
    ("grpc.max_receive_message_length", _RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake, and must be told
    # Clients may ask as often as they like whether the server is alive; etcd's own do.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.max_concurrent_streams", 100_000),
]


@dataclass(frozen=True)
class Tls:
    """PEM files. With `client_ca` only callers with a certificate of that authority are served."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class StoreServer:
    """Serves an engine at `listen` (`host:port`; port 0 takes a free one) until stopped."""

    def __init__(self, engine: Engine, listen: str, tls: Tls | None = None) -> None:
        self._engine = engine
        self._tls = tls
        self._host, self._port = split_address(listen)
        self._client = LocalClient(engine, timeout_s=3600)  # of the lock and election services: callers set deadlines
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        """For `leasehold.connect`."""
        return f"{'etcds' if self._tls else 'etcd'}://{self.address}"

    async def start(self) -> None:
        """Listen and serve; an address that cannot be had is told as such."""
        server = grpc.aio.server(options=_OPTIONS)
        try:
            if self._tls is None:
                self._port = server.add_insecure_port(self.address)
            else:
                self._port = server.add_secure_port(self.address, _credentials(self._tls))
        except RuntimeError:
            raise SettingError(f"cannot listen on {self.address}: {_why_not(self._host, self._port)}") from None
        scheme = "https" if self._tls else "http"
        services = {
            "etcdserverpb.KV": kv_service(self._engine),
            "etcdserverpb.Watch": watch_service(self._engine),
            "etcdserverpb.Lease": lease_service(self._engine),
            "etcdserverpb.Maintenance": maintenance_service(self._engine),
            "etcdserverpb.Cluster": cluster_service(self._engine, f"{scheme}://{self.address}"),
            "etcdserverpb.Auth": auth_service(self._engine),
            "v3lockpb.Lock": lock_service(self._client),
            "v3electionpb.Election": election_service(self._client),
        }
        server.add_generic_rpc_handlers(
            tuple(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items())
        )
        await server.start()
        self._server = server

    async def stop(self, grace_s: float = 1.0) -> None:
        """Take no new calls, give running ones `grace_s`, then end. The engine stays open."""
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None
        await self._client.close()


def split_address(listen: str) -> tuple[str, int]:
    """`"127.0.0.1:2379"` -> its host and port."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise InvalidArgument(f"{listen!r} is no address to listen on; it looks like 127.0.0.1:2379")
    return host, int(port)


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    ca = tls.client_ca.read_bytes() if tls.client_ca else None
    pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


def _why_not(host: str, port: int) -> str:
    """gRPC does not tell why; asking the system once more does."""
    try:
        with socket.create_server((host.strip("[]"), port)):
            return "gRPC refused it"
    except OSError as error:
        return error.strerror or str(error)
