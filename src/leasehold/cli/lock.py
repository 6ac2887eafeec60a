"""`leasehold lock NAME [-- COMMAND...]`: as `etcdctl lock`, and the command is ended when the lock is lost."""

from __future__ import annotations

import sys

import click

from leasehold.cli.child import Desk, run_child, run_until_told, until_told
from leasehold.cli.help import Explained
from leasehold.cli.store_flags import reach, store_options, store_url, waiting_options
from leasehold.concurrency import Held, Mutex, Session
from leasehold.concurrency.deadline import margin_for
from leasehold.runtime.log import configure


@click.command(
    cls=Explained,
    examples=(
        ("leasehold lock jobs/nightly -- ./nightly.sh", "one machine of many runs it; the others wait their turn"),
        ("leasehold lock jobs/nightly --timeout 5 -- ./nightly.sh", "or give up after 5 s"),
    ),
)
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@waiting_options("seconds that the lock outlives a dead holder")
@store_options
def lock(
    name: str, command: tuple[str, ...], ttl_s: int, timeout_s: float | None, coord_url: str | None, endpoints: str
) -> None:
    """Hold the lock NAME while COMMAND runs; its exit code is passed on.

    COMMAND finds ETCD_LOCK_KEY, ETCD_LOCK_REV and LEASEHOLD_LOCK_TOKEN (a fencing token) in its environment. Without
    COMMAND, print the key and hold the lock until a signal comes. Shares locks with `etcdctl lock` and Go's
    concurrency.Mutex.
    """
    configure()
    url = store_url(coord_url, endpoints)
    sys.exit(run_until_told(lambda desk: _lock(desk, url, name, command, ttl_s, timeout_s)))


async def _lock(desk: Desk, url: str, name: str, command: tuple[str, ...], ttl_s: int, timeout_s: float | None) -> int:
    async with (
        reach(url) as coord,
        Session.open(coord, ttl_s=ttl_s) as session,
        Mutex(session, name).hold(timeout_s=timeout_s) as held,
    ):
        if command:
            margin_s = margin_for(session.ttl_s * 1000) / 1000
            return await run_child(desk, command, lock_environment(held), margin_s=margin_s)
        click.echo(held.key.decode(errors="replace"))
        return await until_told()


def lock_environment(held: Held) -> dict[str, str]:
    return {
        "ETCD_LOCK_KEY": held.key.decode(errors="replace"),
        "ETCD_LOCK_REV": str(held.header.revision),
        "LEASEHOLD_LOCK_TOKEN": str(held.token),
    }
