"""The pages of the store's port: probes, metrics, version, and the JSON gateway."""

from __future__ import annotations

import json

from leasehold.base.errors import LeaseholdError
from leasehold.base.hosts import HostPolicy
from leasehold.base.text import printable
from leasehold.mvcc.alarms import AlarmKind
from leasehold.store.engine import Engine
from leasehold.store.server.clients import Clients
from leasehold.store.server.gateway.gateway import JSON, NO_SNIFF, TEXT, Gateway
from leasehold.store.server.http1.exchange import Exchange
from leasehold.store.server.http1.metrics import METRICS_TYPE, metrics_text
from leasehold.store.status import CLUSTER_VERSION, ETCD_VERSION, active_alarms

PROBES = ("/health", "/livez", "/readyz", "/version", "/metrics")
_NOT_FOUND = b"404 page not found\n"


def is_probe(path: str) -> bool:
    return "/" + path.removeprefix("/").partition("/")[0] in PROBES


class Site:
    """Answers requests of HTTP/1.1."""

    def __init__(self, engine: Engine, gateway: Gateway, hosts: HostPolicy, clients: Clients) -> None:
        self._engine = engine
        self._gateway = gateway
        self._hosts = hosts
        self._clients = clients

    async def serve_probes(self, exchange: Exchange) -> None:
        """Serve a connection beyond the limit."""
        if is_probe(exchange.path):
            self._probe(exchange)
        else:
            limit = self._clients.connections_max
            exchange.respond(503, f"the store has {limit} connections, its limit\n".encode(), TEXT)

    async def serve(self, exchange: Exchange) -> None:
        path = exchange.path
        if path.startswith("/v3beta/"):
            path = exchange.path = "/v3/" + path.removeprefix("/v3beta/")
        if path.startswith("/v3/"):
            if self._may_call(exchange):
                await self._gateway.serve(exchange)
        elif is_probe(path):
            self._probe(exchange)
        else:
            exchange.respond(404, _NOT_FOUND, TEXT, NO_SNIFF)

    def _may_call(self, exchange: Exchange) -> bool:
        """Refuse requests that a web page could have made a browser send."""
        host, origin = exchange.headers.get("host"), exchange.headers.get("origin")
        if not self._hosts.allows(host):
            text = f"this port is not addressed as '{printable(host or '', 200)}': use its IP address, or add the name "
            exchange.respond(421, (text + "to the setting allowed_hosts (--allowed-hosts)\n").encode(), TEXT)
            return False
        if origin is not None:
            text = f"requests of web pages ('{printable(origin, 200)}') are refused: send no Origin header\n"
            exchange.respond(403, text.encode(), TEXT)
            return False
        return True

    def _probe(self, exchange: Exchange) -> None:
        if exchange.method not in ("GET", "HEAD"):
            exchange.respond(405, b"Method Not Allowed\n", TEXT, ("Allow", "GET"), NO_SNIFF)
        elif exchange.path == "/health":
            self._health(exchange)
        elif exchange.path == "/version":
            versions = {"etcdserver": ETCD_VERSION, "etcdcluster": CLUSTER_VERSION}
            exchange.respond(200, _compact(versions), JSON)
        elif exchange.path == "/metrics":
            exchange.respond(200, metrics_text(self._engine, self._clients).encode(), METRICS_TYPE)
        else:
            self._checks(exchange)

    def _health(self, exchange: Exchange) -> None:
        reason = self._problem()
        excluded = exchange.query.get("exclude", [])
        if not reason:
            with self._engine.lock:
                names = [alarm.kind.name for alarm in active_alarms(self._engine.store)]
            reason = next((f"ALARM {name}" for name in names if name not in excluded), "")
        answer = _compact({"health": "false" if reason else "true", "reason": reason})
        if reason:
            exchange.respond(503, answer + b"\n", TEXT, NO_SNIFF)
        else:
            exchange.respond(200, answer, TEXT)

    def _problem(self) -> str:
        """Why the store cannot be read; empty if it can."""
        try:
            with self._engine.lock:
                self._engine.enter()
        except LeaseholdError as error:
            return f"RANGE ERROR:{error}"
        return ""

    def _checks(self, exchange: Exchange) -> None:
        """`/livez` and `/readyz`, whole or one check of them."""
        _, kind, *rest = exchange.path.split("/")
        names = ["serializable_read"]
        if kind == "readyz":
            names = ["data_corruption", "serializable_read", "linearizable_read", "non_learner"]
        if rest and (len(rest) > 1 or rest[0] not in names):
            exchange.respond(404, _NOT_FOUND, TEXT, NO_SNIFF)
            return
        excluded = exchange.query.get("exclude", [])
        wanted = rest or [name for name in names if name not in excluded]
        failed = {name: reason for name in wanted if (reason := self._failed(name))}
        lines = "".join(
            f"[-]{name} failed: {failed[name]}\n" if name in failed else f"[+]{name} ok\n" for name in wanted
        )
        if failed:
            exchange.respond(503, lines.encode() + b"\n", TEXT, NO_SNIFF)
        else:
            exchange.respond(200, (lines if "verbose" in exchange.query else "").encode() + b"ok\n", TEXT, NO_SNIFF)

    def _failed(self, check: str) -> str:
        if check == "data_corruption":
            with self._engine.lock:
                corrupt = any(alarm.kind is AlarmKind.CORRUPT for alarm in self._engine.store.alarms)
            return "alarm activated: CORRUPT" if corrupt else ""
        return "" if check == "non_learner" else self._problem().removeprefix("RANGE ERROR:")


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
