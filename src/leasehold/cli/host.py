"""`leasehold host`: lend memory to the pool."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any

import click

from leasehold.base.security import TlsSettings
from leasehold.base.units import format_bytes
from leasehold.cli.help import Explained
from leasehold.cli.settings import resolve_options, sections_options
from leasehold.cli.store_flags import shared
from leasehold.pool.settings import HostSettings
from leasehold.runtime.tls import Tls


@click.command(
    cls=Explained,
    examples=(
        ("leasehold host --segment 1GiB --master 127.0.0.1:50051", "lend 1 GiB to the master at this address"),
        (
            "leasehold host --segment 64GiB --listen 10.0.0.21:7500 --coord etcd://10.0.0.1:2379",
            "find the master in etcd, and follow it after a failover",
        ),
    ),
)
@sections_options({"host": HostSettings, "tls": TlsSettings})
def host(**options: Any) -> None:
    """Lend a segment of this machine's memory to the pool, over TCP, until SIGTERM or Ctrl-C."""
    import uvloop

    from leasehold.runtime.open_files import raise_open_files
    from leasehold.runtime.private_files import make_files_private

    raise_open_files()
    make_files_private()
    settings = resolve_options(HostSettings, "host", options).values
    if bool(settings.master) == bool(settings.coord):
        raise click.UsageError("give either --master HOST:PORT, or --coord URL to look the master up")
    shared(settings.coord, "--coord")
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_lend(settings, Tls.of(resolve_options(TlsSettings, "tls", options).values)))


async def _lend(settings: HostSettings, tls: Tls | None) -> None:
    from leasehold.admin.exposition import MetricsPort
    from leasehold.coord.connect import connect
    from leasehold.pool.admission import Admission
    from leasehold.pool.capability import Keyring, Verifier
    from leasehold.pool.host import Host
    from leasehold.pool.lending import Lending
    from leasehold.runtime.secret_file import secrets_in
    from leasehold.wire.client import Client
    from leasehold.wire.finder import Finder, MasterView

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with contextlib.AsyncExitStack() as stack:
        where: str | Finder = settings.master
        if settings.coord:
            coord = await connect(settings.coord)
            stack.push_async_callback(coord.close)
            where = MasterView(coord, settings.cluster)
        client = await stack.enter_async_context(Client(where, native=True, tls=tls))
        secrets = secrets_in(settings.cluster_secret_file)
        verifier = Verifier(Keyring(secrets()), settings.capability_ttl_ms) if secrets() else None
        memory = Host(settings.segment_bytes, settings, tls, Admission(verifier))
        memory.admission.withhold()
        await memory.start(settings.listen, settings.advertise)
        stack.push_async_callback(memory.close)
        if settings.metrics:
            metrics = MetricsPort(settings.metrics, memory.measures)
            click.echo(f"metrics at http://{await metrics.start()}/metrics")
            stack.push_async_callback(metrics.close)
        master = settings.coord or settings.master
        click.echo(f"lending {format_bytes(memory.size)} at {memory.endpoint} as soon as {master} answers")
        lending = Lending(
            memory, client, name=settings.name, ping_interval_ms=settings.ping_interval_ms, secrets_now=secrets
        )
        task = asyncio.create_task(lending.run())
        await stopped.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await lending.take_back()
