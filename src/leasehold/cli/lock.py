"""`leasehold lock NAME [-- COMMAND...]`: compatible with `etcdctl lock`; stops the command if the lock is lost."""

from __future__ import annotations

import sys

import click

from leasehold.cli.child import SignalRouter, run_child, run_until_signal, wait_for_signal
from leasehold.cli.help import Explained
from leasehold.cli.store_flags import reach, store_options, store_url, waiting_options
from leasehold.concurrency import Held, Mutex, Session
from leasehold.concurrency.deadline import margin_for
from leasehold.runtime.log import configure


@click.command(
    cls=Explained,
    examples=(
        ("leasehold lock jobs/nightly -- ./nightly.sh", "run it on one machine at a time; the others wait"),
        ("leasehold lock jobs/nightly --timeout 5 -- ./nightly.sh", "give up after waiting 5 s"),
    ),
)
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@waiting_options("seconds after which the lock of a dead process expires")
@store_options
def lock(
    name: str, command: tuple[str, ...], ttl_s: int, timeout_s: float | None, coord_url: str | None, endpoints: str
) -> None:
    """Hold the lock NAME while COMMAND runs, and exit with COMMAND's exit code.

    COMMAND receives ETCD_LOCK_KEY, ETCD_LOCK_REV and LEASEHOLD_LOCK_TOKEN (a fencing token) as environment variables.
    It is stopped if the lock is lost. Without COMMAND, prints the key and holds the lock until a signal arrives.
    Interoperates with `etcdctl lock` and Go's concurrency.Mutex.
    """
    configure()
    url = store_url(coord_url, endpoints)
    sys.exit(run_until_signal(lambda router: _lock(router, url, name, command, ttl_s, timeout_s)))


async def _lock(
    router: SignalRouter, url: str, name: str, command: tuple[str, ...], ttl_s: int, timeout_s: float | None
) -> int:
    async with (
        reach(url) as coord,
        Session.open(coord, ttl_s=ttl_s) as session,
        Mutex(session, name).hold(timeout_s=timeout_s) as held,
    ):
        if command:
            margin_s = margin_for(session.ttl_s * 1000) / 1000
            return await run_child(router, command, lock_environment(held), margin_s=margin_s)
        click.echo(held.key.decode(errors="replace"))
        return await wait_for_signal()


def lock_environment(held: Held) -> dict[str, str]:
    return {
        "ETCD_LOCK_KEY": held.key.decode(errors="replace"),
        "ETCD_LOCK_REV": str(held.header.revision),
        "LEASEHOLD_LOCK_TOKEN": str(held.token),
    }
