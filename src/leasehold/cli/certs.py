"""`leasehold certs`: a small certificate authority for a first cluster."""

from __future__ import annotations

from pathlib import Path

import click

from leasehold.cli.help import Explained


@click.command(
    cls=Explained,
    examples=(
        (
            "leasehold certs pki --server a=10.0.0.11,a.example --server b=10.0.0.12 --client operator --client alice",
            "an authority, two servers and two clients",
        ),
        ("leasehold certs pki --server a=10.0.0.11,a.example", "replace one certificate, before it expires"),
    ),
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="NAME=HOST,...",
    help="make a certificate for a node, host, cache or store, with the addresses that others use for it",
)
@click.option("--client", "clients", multiple=True, metavar="NAME", help="make a certificate for a person or a program")
@click.option("--days", default=365, show_default=True, type=click.IntRange(1, 3650), help="time until they expire")
def certs(directory: Path, servers: tuple[str, ...], clients: tuple[str, ...], days: int) -> None:
    """Make certificates for mutual TLS in DIRECTORY, and the authority that signs them if there is none.

    It needs the command `openssl`. The name `operator` may give orders by default (`--operators`). Keep ca.key off the
    machines of the cluster.
    """
    from leasehold.runtime.certificates import CertificateFolder

    wanted: list[tuple[str, list[str]]] = []
    for server in servers:
        name, equals, hosts = server.partition("=")
        if not equals or not hosts:
            raise click.UsageError(f"--server '{server}' is not NAME=HOST,...; write for example a=10.0.0.11,a.example")
        wanted.append((name, hosts.split(",")))
    wanted += [(name, []) for name in clients]
    folder = CertificateFolder(directory)
    if folder.make_authority():
        click.echo(f"made the authority '{folder.ca}'; its key '{directory / 'ca.key'}' signs new certificates")
    for name, addresses in wanted:
        made = folder.issue(name, addresses, days)
        purpose = f"for {', '.join(addresses)}" if addresses else "for a client"
        click.echo(f"made '{made}' and its key {purpose}, valid for {days} days")
