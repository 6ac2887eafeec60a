"""`leasehold version`."""

from __future__ import annotations

import click

import leasehold


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(leasehold.__version__)
