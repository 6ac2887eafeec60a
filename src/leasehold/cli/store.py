"""`leasehold store`: the embedded store as a process of its own."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import click
import structlog

from leasehold.base.errors import SettingError
from leasehold.cli.help import Explained
from leasehold.cli.settings import resolve_options, settings_options
from leasehold.store.settings import StoreSettings

DISK_FAILED = "the disk failed"


@click.command(
    cls=Explained,
    examples=(
        ("leasehold store --data /var/lib/leasehold/store", "on 127.0.0.1:2379, for every etcd client of this machine"),
        ("leasehold store --restore backup.snap --data new-directory", "out of what `etcdctl snapshot save` wrote"),
    ),
)
@click.option(
    "--listen", default="127.0.0.1:2379", show_default=True, help="host:port to serve; port 0 takes a free one"
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="directory to keep it in; without one, in memory only",
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="certificate (PEM)")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="its key (PEM)")
@click.option(
    "--tls-client-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="serve only callers with a certificate of this authority (PEM)",
)
@click.option(
    "--restore",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="make the new directory out of this snapshot (`etcdctl snapshot save`) first",
)
@settings_options(StoreSettings, "store")
def store(
    listen: str,
    data: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    restore: Path | None,
    **options: Any,
) -> None:
    """Serve an etcd v3 store on this machine: durable in one directory, no cluster."""
    from leasehold.store import opening
    from leasehold.store.server.serve import Tls

    settings = resolve_options(StoreSettings, "store", options).values
    if bool(tls_cert) != bool(tls_key) or (tls_client_ca and not tls_cert):
        raise SettingError("TLS needs both --tls-cert and --tls-key")
    tls = Tls(tls_cert, tls_key, tls_client_ca) if tls_cert and tls_key else None
    if restore is not None:
        if data is None:
            raise SettingError("--restore needs --data: the new directory")
        opening.restore(restore, data)
    _run(_serve(settings, listen, data, tls))


def _run(main: Any) -> None:
    import uvloop

    from leasehold.runtime.open_files import raise_open_files

    raise_open_files()
    uvloop.run(main)


async def _serve(settings: StoreSettings, listen: str, data: Path | None, tls: Any) -> None:
    from leasehold.store import opening
    from leasehold.store.server.serve import StoreServer

    asked = _asked_to_end()
    engine = opening.open_memory(settings) if data is None else opening.open_folder(data, settings)
    # As etcd does: what is in memory is ahead of the disk, and must not be told to anybody; whoever supervises this
    # process sees that it has ended, and starts it again.
    loop = asyncio.get_running_loop()
    engine.on_failed = lambda: loop.call_soon_threadsafe(_settle, asked, DISK_FAILED)
    server = StoreServer(engine, listen, tls)
    try:
        await server.start()
        kept = f"keeps it in {data}" if data else "in memory only: it is gone when this process ends"
        click.echo(f"leasehold store: serves {server.url}, {kept}")
        name = await asked
        if name == DISK_FAILED:
            engine.check_open()  # raises, with what to do
        structlog.get_logger("leasehold.store").info("the store ends in an orderly way", signal=name)
    finally:
        await server.stop()
        await asyncio.to_thread(engine.close)


def _asked_to_end() -> asyncio.Future[str]:
    """Done when SIGTERM or SIGINT has come; which of them."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[str] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _settle, asked, number.name)
    return asked


def _settle(asked: asyncio.Future[str], name: str) -> None:
    if not asked.done():
        asked.set_result(name)
