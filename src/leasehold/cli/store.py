"""`leasehold store`: run the embedded store as a server."""

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

DISK_FAILED = "disk failure"


@click.command(
    cls=Explained,
    examples=(
        ("leasehold store --data /var/lib/leasehold/store", "serve etcd clients of this machine on 127.0.0.1:2379"),
        ("leasehold store --restore backup.snap --data new-directory", "restore a file of `etcdctl snapshot save`"),
    ),
)
@click.option(
    "--listen", default="127.0.0.1:2379", show_default=True, help="HOST:PORT to serve on; port 0 picks a free one"
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="directory for the data (default: keep it in memory only)",
)
@click.option(
    "--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="server certificate (PEM)"
)
@click.option(
    "--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="key of the certificate (PEM)"
)
@click.option(
    "--tls-client-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CA certificate (PEM); only clients with a certificate of this CA are served",
)
@click.option(
    "--restore",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="snapshot file (from `etcdctl snapshot save`) to restore into --data before serving",
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
    """Serve an etcd v3 compatible store from one process: durable in one directory, without replication."""
    from leasehold.store import opening
    from leasehold.store.server.serve import Tls

    settings = resolve_options(StoreSettings, "store", options).values
    if bool(tls_cert) != bool(tls_key) or (tls_client_ca and not tls_cert):
        raise SettingError("TLS needs both --tls-cert and --tls-key")
    tls = Tls(tls_cert, tls_key, tls_client_ca) if tls_cert and tls_key else None
    if restore is not None:
        if data is None:
            raise SettingError("--restore needs --data: give the new directory")
        opening.restore(restore, data)
    _run(_serve(settings, listen, data, tls))


def _run(main: Any) -> None:
    import uvloop

    from leasehold.runtime.open_files import raise_open_files
    from leasehold.runtime.private_files import make_files_private

    raise_open_files()
    make_files_private()
    uvloop.run(main)


async def _serve(settings: StoreSettings, listen: str, data: Path | None, tls: Any) -> None:
    from leasehold.store import opening
    from leasehold.store.server.serve import StoreServer

    stopped = _stop_reason()
    engine = opening.open_memory(settings) if data is None else opening.open_folder(data, settings)
    # Stop on a disk failure, as etcd does: the state in memory is ahead of the disk and must not be served. The
    # supervisor sees the exit and restarts the process.
    loop = asyncio.get_running_loop()
    engine.on_failed = lambda: loop.call_soon_threadsafe(_settle, stopped, DISK_FAILED)
    server = StoreServer(engine, listen, tls)
    try:
        await server.start()
        where = f"data in '{data}'" if data else "data in memory only, lost when this process exits"
        click.echo(f"leasehold store: serves {server.url}, {where}")
        reason = await stopped
        if reason == DISK_FAILED:
            engine.check_open()  # raises the error
        structlog.get_logger("leasehold.store").info("the store shuts down", signal=reason)
    finally:
        await server.stop()
        await asyncio.to_thread(engine.close)


def _stop_reason() -> asyncio.Future[str]:
    """Resolves with the name of the signal when SIGTERM or SIGINT arrives."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[str] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _settle, stopped, number.name)
    return stopped


def _settle(stopped: asyncio.Future[str], reason: str) -> None:
    if not stopped.done():
        stopped.set_result(reason)
