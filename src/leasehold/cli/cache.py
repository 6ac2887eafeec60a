"""`leasehold cache`: serve a lease-coherent cache, read and write."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import uvloop

from leasehold.admin.exposition import MetricsPort
from leasehold.base.errors import SettingError
from leasehold.base.security import TlsSettings
from leasehold.base.settings import duration, text, url
from leasehold.base.text import without_password
from leasehold.cache.authority import Authority, plan_for
from leasehold.cache.client import Client
from leasehold.cache.failover import ELECTION_KEY, run_for_term
from leasehold.cache.model import ABSENT, MODES, Version
from leasehold.cache.server import CacheServer
from leasehold.cache.settings import AuthoritySettings
from leasehold.cache.stores.api import BackingStore
from leasehold.cache.stores.coord import CoordStore
from leasehold.cache.stores.memory import MemoryStore
from leasehold.cache.stores.redis import RedisStore
from leasehold.cache.stores.sqlite import SqliteStore
from leasehold.cli.child import END_GRACE_S, run_once
from leasehold.cli.help import Chapters, Explained
from leasehold.cli.operate import tls_files, tls_options
from leasehold.cli.settings import resolve_options, sections_options
from leasehold.cli.store_flags import reach, shared
from leasehold.coord.url import SCHEMES
from leasehold.runtime.private_files import make_files_private
from leasehold.runtime.tls import Tls
from leasehold.wire.finder import parse_address

F = TypeVar("F", bound=Callable[..., Any])
_ADDRESS = "127.0.0.1:7400"
REACH_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class CacheSettings(AuthoritySettings):
    """Settings of `leasehold cache serve`."""

    listen: str = text(_ADDRESS, help="host:port to listen on; port 0 takes a free one")
    metrics: str = text("", help="HOST:PORT of an HTTP port with /metrics and /health; empty: none")
    store: str = url(
        "memory://", help="store for the values: memory://, sqlite://FILE, redis://..., etcd://..., embedded:///DIR"
    )
    prefix: str = text("leasehold/cache/", help="prefix of the keys in the store")
    elect: str = url("", help="coordination store (etcd://...) for the election of one of several authorities")
    elect_ttl_ms: int = duration("5s", low="1s", high="1h", help="time after which a dead authority is replaced")


@click.group(cls=Chapters)
def cache() -> None:
    """Serve and use a cache without stale reads."""


@cache.command(
    cls=Explained,
    examples=(
        ("leasehold cache serve --store sqlite://cache.db --term 10s", ""),
        (
            "leasehold cache serve --store etcd://10.0.0.1:2379 --elect etcd://10.0.0.1:2379",
            "one of several, with failover",
        ),
    ),
)
@sections_options({"cache": CacheSettings, "tls": TlsSettings})
def serve(**options: Any) -> None:
    """Serve the authority of a cache."""
    make_files_private()
    settings = resolve_options(CacheSettings, "cache", options).values
    shared(settings.elect, "--elect")
    if settings.adaptive and settings.term_min_ms > settings.term_ms:
        raise SettingError("term_min must not be longer than term: it is the minimum lease term with `adaptive`")
    if settings.elect and settings.store.startswith("memory:"):
        click.echo("leasehold: --store memory://: every value is lost when another authority is elected", err=True)
    found = plan_for(settings)
    for law in (*found.broken, *found.risky):
        click.echo(f"leasehold: {law.name}: {law.why}", err=True)
    if found.broken:
        raise SystemExit(2)
    click.echo(f"a write waits at most {found.outage_holder_death_s:g} s for a holder that died", err=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, Tls.of(resolve_options(TlsSettings, "tls", options).values)))


async def _serve(settings: CacheSettings, tls: Tls | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = CacheServer(*parse_address(settings.listen), tls=tls)
    metrics = MetricsPort(settings.metrics, server.measures) if settings.metrics else None
    if metrics is not None:
        click.echo(f"metrics at http://{await metrics.start()}/metrics")
    stopping = asyncio.ensure_future(stop.wait())
    serving = asyncio.ensure_future(_serve_until_cancelled(settings, server))
    try:
        await asyncio.wait((stopping, serving), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()  # raises the error
    finally:
        stopping.cancel()
        serving.cancel()
        await asyncio.wait((serving,), timeout=END_GRACE_S)
        if metrics is not None:
            await metrics.close()
        server.close()


async def _serve_until_cancelled(settings: CacheSettings, server: CacheServer) -> None:
    async with contextlib.AsyncExitStack() as stack:
        opener = await _opener(settings, stack)
        if settings.elect:
            coord = await stack.enter_async_context(reach(settings.elect, "--elect URL"))
            click.echo(f"serving on {server.address}")
            await run_for_term(
                coord,
                opener,
                settings,
                server.install,
                name=f"{socket.gethostname()}/{server.address}",
                prefix=settings.prefix + ELECTION_KEY,
                ttl_s=max(1, settings.elect_ttl_ms // 1_000),
            )
        authority = await Authority.open(opener(), settings)
        click.echo(f"serving on {server.address}")
        server.install(authority)
        try:
            await authority.deposed.wait()
        finally:
            await authority.close()


async def _opener(settings: CacheSettings, stack: contextlib.AsyncExitStack) -> Callable[[], BackingStore]:
    """A function that opens the store, called once per term."""
    url, prefix = settings.store, settings.prefix.encode()
    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        return MemoryStore
    if scheme == "sqlite":
        return lambda: SqliteStore(rest)
    if scheme in ("redis", "rediss"):
        return lambda: RedisStore(url, prefix)
    if scheme not in SCHEMES:
        raise SettingError(
            f"store = {without_password(url)!r}: memory://, sqlite://FILE, redis://HOST:PORT, etcd://HOST:PORT or "
            "embedded:///DIR expected"
        )
    coord = await stack.enter_async_context(reach(url, "--store URL"))
    return lambda: CoordStore(coord, prefix)


_mode = click.option(
    "--mode",
    type=click.Choice(MODES),
    default="callback",
    show_default=True,
    help="call lease holders back, wait for their leases to expire, or fail if there are any",
)
_server_option = click.option(
    "--server", "servers", multiple=True, default=(_ADDRESS,), show_default=True, help="host:port; may be repeated"
)


def _addresses(command: F) -> F:
    """Add `--server` and the options for TLS."""
    return _server_option(tls_options(command))


@contextlib.asynccontextmanager
async def _client(servers: tuple[str, ...]) -> AsyncIterator[Client]:
    """A client that has reached an authority. A write may wait long for a lease, but not for a missing server."""
    async with Client(servers, tls=tls_files()) as client:
        await client.connected(REACH_TIMEOUT_S)
        yield client


@cache.command(cls=Explained, examples=(("leasehold cache get limits owners", "two keys, two lines"),))
@click.argument("keys", nargs=-1, required=True)
@_addresses
def get(keys: tuple[str, ...], servers: tuple[str, ...]) -> None:
    """Print the values of keys, one per line; exit code 1 if one is absent."""

    async def run() -> dict[bytes, bytes | None]:
        async with _client(servers) as client:
            return await client.get_many([key.encode() for key in keys])

    found = run_once(run())
    for value in found.values():
        click.echo(value if value is not None else b"")
    if any(value is None for value in found.values()):
        raise SystemExit(1)


@cache.command(
    cls=Explained,
    examples=(
        ("leasehold cache put limits 100", "prints its version once no client can read the old value"),
        ("leasehold cache put limits 100 --expect 0.0", "only if the key is absent"),
    ),
)
@click.argument("key")
@click.argument("value")
@_mode
@click.option("--expect", help="write only if the key has this version (EPOCH.N); 0.0: only if it is absent")
@_addresses
def put(key: str, value: str, mode: str, expect: str | None, servers: tuple[str, ...]) -> None:
    """Write a value, and print its version once no client can read the old value."""
    version = _version(expect)

    async def run() -> Version:
        async with _client(servers) as client:
            return await client.put(key.encode(), value.encode(), mode=mode, expect=version)

    click.echo(str(run_once(run())))


@cache.command(cls=Explained, examples=(("leasehold cache delete limits --mode fail", "only without leases"),))
@click.argument("key")
@_mode
@_addresses
def delete(key: str, mode: str, servers: tuple[str, ...]) -> None:
    """Delete a key, and print the version of the deletion."""

    async def run() -> Version:
        async with _client(servers) as client:
            return await client.delete(key.encode(), mode=mode)

    click.echo(str(run_once(run())))


def _version(text: str | None) -> Version | None:
    if text is None:
        return None
    epoch, _, n = text.partition(".")
    if not (epoch.isdigit() and n.isdigit()):
        raise click.BadParameter(f"{text!r} is not a version: write EPOCH.N, or {ABSENT} for an absent key")
    return Version(int(epoch), int(n))
