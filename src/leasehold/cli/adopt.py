"""`leasehold adopt`: take over the pool of a running `mooncake_master`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leasehold.base.errors import Unavailable
from leasehold.base.text import printable
from leasehold.cli.child import run_once
from leasehold.cli.help import Explained
from leasehold.cli.journal import cluster_option, coord_option, prefix_option
from leasehold.cli.mooncake_flags import duration_ms
from leasehold.cli.operate import json_option, print_json
from leasehold.cli.store_flags import StoreAway, shared, store_away
from leasehold.coord.connect import connect
from leasehold.runtime.private_files import make_files_private
from leasehold.wire.finder import parse_address
from leasehold.wire.tables import NEWEST, find_release

if TYPE_CHECKING:
    from leasehold.node.adoption.steps import Order, Survey, Target
    from leasehold.node.index_files import Imported

_ADMIN_PORT = 9003  # mooncake_master's default


class Report:
    """Prints what happens to standard error, with a bar for the listing if that is a terminal."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._shown = 0

    def say(self, sentence: str) -> None:
        self._end_bar()
        if not self._quiet or sentence.startswith("warning"):
            click.echo(f"adopt: {printable(sentence)}", err=True)

    def progress(self, done: int, total: int) -> None:
        if self._quiet:
            return
        if self._bar is None:
            self._bar = click.progressbar(length=total, label="adopt: listed", file=sys.stderr)
            self._bar.__enter__()
            self._shown = 0
        self._bar.update(done - self._shown)
        self._shown = done
        if done >= total:
            self._end_bar()

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


@click.command(
    "adopt",
    cls=Explained,
    examples=(
        ("leasehold adopt --from 10.0.0.5:50051 --dry-run", "what would be taken, and what not; changes nothing"),
        (
            "leasehold adopt --from 10.0.0.5:50051 --coord etcd://10.0.0.1:2379 --data-dir /var/lib/leasehold",
            "after its RPC port was closed to the clients; then stop it when the command waits for it",
        ),
        (
            "leasehold adopt --from 127.0.0.1:50051 --cut-over --close ./close-port.sh --pid 4711 --data-dir ./data",
            "run all steps on the old master's machine",
        ),
    ),
)
@click.option("--from", "old_rpc", required=True, metavar="HOST:PORT", help="RPC address of the old master")
@click.option(
    "--from-admin",
    "old_admin",
    metavar="HOST:PORT",
    help=f"its admin address (its flag --metrics_port; default: the same host, port {_ADMIN_PORT})",
)
@click.option("--release", default=NEWEST.name, show_default=True, help="Mooncake release of the old master")
@coord_option
@cluster_option
@prefix_option
@click.option("--data-dir", type=click.Path(path_type=Path), help="data directory of the node to start first")
@click.option("--dry-run", is_flag=True, help="list and count only; the old master and the store stay unchanged")
@click.option("--tenant", "tenants", multiple=True, help="tenant with objects, besides those with a quota (repeatable)")
@click.option("--close", metavar="COMMAND", default="", help="command that closes the old RPC port to its clients")
@click.option("--cut-over", is_flag=True, help="also end the old master, by --stop or --pid, after the listing")
@click.option("--stop", metavar="COMMAND", default="", help="command that ends the old master, for --cut-over")
@click.option("--pid", type=click.IntRange(1), help="process id of the old master, if it runs on this machine")
@click.option("--standby", "standbys", multiple=True, metavar="HOST:PORT", help="stopped standby master (repeatable)")
@click.option("--no-standbys", is_flag=True, help="vouch that no other master of the old cluster can take over")
@click.option(
    "--old-put-release",
    default="10m",
    show_default=True,
    help="the old master's --put_start_release_timeout_sec: its writers have given up after this time",
)
@click.option("--wait", "wait_s", default=60.0, show_default=True, help="seconds to wait for each step")
@click.option(
    "--assume-dead", is_flag=True, help="vouch that the old master is dead although it is not proven (logged)"
)
@click.option(
    "--unverified", is_flag=True, help="adopt although clients may reach the old master: gives up P3 (logged)"
)
@json_option
def adopt(
    old_rpc: str,
    old_admin: str | None,
    release: str,
    coord: str,
    cluster: str,
    prefix: str,
    data_dir: Path | None,
    dry_run: bool,
    tenants: tuple[str, ...],
    close: str,
    cut_over: bool,
    stop: str,
    pid: int | None,
    standbys: tuple[str, ...],
    no_standbys: bool,
    old_put_release: str,
    wait_s: float,
    assume_dead: bool,
    unverified: bool,
    as_json: bool,
) -> None:
    """Take over the objects of a running mooncake_master into an empty cluster.

    Then start the node with this --data-dir. The bytes stay where they are: the same storage clients go on with the
    same memory, and mount it again at the new master. docs/migrate.md leads through it.
    """
    from leasehold.node.adoption.steps import Order, Target

    make_files_private()
    host = parse_address(old_rpc)[0]
    for address in (old_admin, *standbys):
        if address:
            parse_address(address)
    if cut_over and not stop and not pid:
        raise click.UsageError("--cut-over ends the old master: give --stop COMMAND, or --pid PID if it runs here")
    if not cut_over and stop:
        raise click.UsageError("--stop is run by --cut-over only: add --cut-over")
    if not dry_run and data_dir is None:
        raise click.UsageError("--data-dir is missing: give the data directory of the node that you will start first")
    order = Order(
        rpc=old_rpc,
        admin=old_admin or (f"[{host}]:{_ADMIN_PORT}" if ":" in host else f"{host}:{_ADMIN_PORT}"),
        release=find_release(release),
        standbys=standbys,
        no_standbys=no_standbys,
        tenants=tenants,
        close=close,
        stop=stop,
        pid=pid or 0,
        cut_over=cut_over,
        assume_dead=assume_dead,
        unverified=unverified,
        put_release_ms=duration_ms("old-put-release", old_put_release),
        wait_s=wait_s,
    )
    target = None if dry_run or data_dir is None else Target(shared(coord, "--coord"), cluster, prefix, data_dir)
    survey, done = run_once(_adopt(order, target, Report(as_json)))
    if as_json:
        print_json(_numbers(survey, done))
    else:
        _print(survey, done, data_dir)


async def _adopt(order: Order, target: Target | None, report: Report) -> tuple[Survey, Imported | None]:
    from leasehold.node.adoption.old_master import OldMaster
    from leasehold.node.adoption.steps import Adoption

    async with OldMaster(order.rpc, order.admin, order.release) as old:
        adoption = Adoption(order, old, report.say, report.progress)
        if target is None:
            return await adoption.dry_run(), None
        await _reach(target.coord)  # before the clients are cut off
        return await adoption.take(target)


async def _reach(url: str) -> None:
    try:
        async with await connect(url) as coord:
            await coord.get(b"\0", count_only=True)
    except StoreAway:
        raise
    except Unavailable:
        raise await store_away(url) from None


def _numbers(survey: Survey, done: Imported | None) -> dict[str, Any]:
    plan = survey.plan
    return {
        "adopted": done is not None,
        "objects": len(plan.objects),
        "bytes": plan.bytes,
        "listed": survey.listed,
        "dropped": dict(plan.dropped),
        "dropped_examples": {reason: printable(key.decode(errors="replace")) for reason, key in plan.examples.items()},
        "dropped_replicas": dict(plan.dropped_replicas),
        "not_listed": survey.other_keys,
        "segments": [
            {
                "name": one.spec.name,
                "endpoint": one.spec.endpoint,
                "bytes": one.spec.size,
                "block_unit": unit,
                "unlisted_bytes": unlisted,
            }
            for one, unit, unlisted in zip(plan.segments, plan.units, plan.unlisted_bytes, strict=True)
        ],
        "unaligned": plan.unaligned,
        "shared_lines": plan.shared_lines,
        "lease_ms": survey.terms.lease_ms,
        "listing_ms": survey.took_ms,
        "calls_by_others": survey.calls_meanwhile,
        "overrides": survey.overrides,
        "n": done.n if done is not None else 0,
    }


def _print(survey: Survey, done: Imported | None, data_dir: Path | None) -> None:
    plan = survey.plan
    verb = "adopted" if done is not None else "would adopt"
    click.echo(
        f"{verb} {len(plan.objects)} of {survey.listed} objects ({plan.bytes} bytes, listed in {survey.took_ms} ms)"
    )
    for reason, count in plan.dropped.most_common():
        key = printable(plan.examples[reason].decode(errors="replace"), 80)
        click.echo(f"  dropped {count}: {reason} (such as '{key}')")
    for reason, count in plan.dropped_replicas.most_common():
        click.echo(f"  dropped {count} replicas of objects that have others: {reason}")
    if survey.other_keys:
        click.echo(
            f"  not listed {survey.other_keys}: unfinished puts, or tenants without a quota (give --tenant NAME)"
        )
    fine = sum(unit < 64 for unit in plan.units)
    click.echo(
        f"{len(plan.segments)} segments, {fine} of them with blocks that are no multiples of 64 bytes "
        f"({plan.unaligned} objects); they are kept exactly"
    )
    unlisted = sum(bool(size) for size in plan.unlisted_bytes)
    if unlisted:
        click.echo(
            f"{unlisted} segments have unfinished puts: their free space is quarantined for "
            f"{survey.terms.put_release_ms // 1000} s"
        )
    if done is None:
        click.echo(f"nothing was changed; calls by clients meanwhile: {sum(survey.calls_meanwhile.values())}")
    else:
        click.echo(
            f"now start the node with --data-dir '{data_dir}', at the address where the clients look for a master"
        )
