"""`leasehold elect NAME VALUE`: compatible with `etcdctl elect`."""

from __future__ import annotations

import sys

import click

from leasehold.cli.child import run_until_signal, wait_for_signal
from leasehold.cli.help import Explained
from leasehold.cli.store_flags import reach, store_options, store_url, waiting_options
from leasehold.concurrency import Election, Session
from leasehold.runtime.log import configure


@click.command(
    cls=Explained,
    examples=(
        ("leasehold elect schedulers host-a", "campaign, then lead until Ctrl-C"),
        ("leasehold elect schedulers --listen", "print the current leader and every later one"),
    ),
)
@click.argument("name")
@click.argument("value", required=False)
@click.option("--listen", "-l", is_flag=True, help="print every leader instead of campaigning")
@waiting_options("seconds after which the leadership of a dead process expires")
@store_options
def elect(
    name: str,
    value: str | None,
    listen: bool,
    ttl_s: int,
    timeout_s: float | None,
    coord_url: str | None,
    endpoints: str,
) -> None:
    """Campaign in election NAME with VALUE, and lead until a signal arrives.

    Prints the key and the value once elected. With --listen, prints the key and value of every leader from now on.
    Interoperates with `etcdctl elect` and Go's concurrency.Election.
    """
    if listen == (value is not None):
        raise click.UsageError("give either a VALUE to campaign with, or --listen")
    configure()
    url = store_url(coord_url, endpoints)
    if value is None:
        sys.exit(run_until_signal(lambda _: _listen(url, name, ttl_s)))
    sys.exit(run_until_signal(lambda _: _lead(url, name, value, ttl_s, timeout_s)))


async def _lead(url: str, name: str, value: str, ttl_s: int, timeout_s: float | None) -> int:
    async with (
        reach(url) as coord,
        Session.open(coord, ttl_s=ttl_s) as session,
        Election(session, name).lead(value, timeout_s=timeout_s) as held,
    ):
        click.echo(f"{held.key.decode(errors='replace')}\n{value}")
        return await wait_for_signal()


async def _listen(url: str, name: str, ttl_s: int) -> int:
    async with reach(url) as coord, Session.open(coord, ttl_s=ttl_s) as session:
        async for leader in Election(session, name).observe():
            if leader.kv is not None:
                click.echo(f"{leader.kv.key.decode(errors='replace')}\n{leader.value.decode(errors='replace')}")
    return 0
