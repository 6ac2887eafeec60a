"""`leasehold hosts`: list the storage hosts, empty one, and remove it."""

from __future__ import annotations

import time
from urllib.parse import urlencode

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leasehold.admin.mooncake_state import DrainJobInfo
from leasehold.admin.objects import PAGE_MAX, HostLine, HostPage
from leasehold.admin.status import Operated
from leasehold.base.text import printable
from leasehold.base.units import format_bytes, format_duration_ms
from leasehold.cli.exit_codes import ExitCode
from leasehold.cli.help import Chapters, Explained
from leasehold.cli.operate import (
    OPERATE_TIMEOUT_S,
    admin_option,
    call,
    json_option,
    leader_of,
    print_json,
    print_outcome,
)

POLL_S = 0.5
RUNNING = ("CREATED", "PLANNING", "RUNNING")


@click.group(cls=Chapters)
def hosts() -> None:
    """List the storage hosts, empty one, and remove it."""


@hosts.command(
    "list",
    cls=Explained,
    examples=(("leasehold hosts list --json | jq -r '.hosts[] | select(.state != \"mounted\").name'", ""),),
)
@admin_option
@json_option
@click.option("--limit", default=1_000, show_default=True, type=click.IntRange(1, 65_536), help="number of segments")
def list_hosts(admin: str, as_json: bool, limit: int) -> None:
    """List the segments that storage hosts lend, with their use and state."""
    found, after = _all(leader_of(admin)[1].admin, limit)
    if as_json:
        print_json(HostPage(tuple(found), after))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "endpoint", "state", "used", "size", "last ping"):
        table.add_column(column, overflow="fold")
    for each in found:
        pinged = f"{format_duration_ms(each.pinged_ms)} ago" if each.pinged_ms >= 0 else "unknown"
        cells = (each.name, each.endpoint, each.state, format_bytes(each.used), format_bytes(each.size), pinged)
        table.add_row(*(escape(printable(cell)) for cell in cells))
    Console(highlight=False).print(table)


def _all(leader: str, limit: int) -> tuple[list[HostLine], str]:
    found: list[HostLine] = []
    after = ""
    while True:
        query = urlencode({"after": after, "limit": min(limit - len(found), PAGE_MAX)})
        page = call(leader, f"/api/hosts?{query}", HostPage)
        found += page.hosts
        after = page.next
        if not after or len(found) >= limit:
            return found, after


@hosts.command(
    cls=Explained,
    examples=(
        ("leasehold hosts drain 10.0.0.21:7500 --wait", "move its objects away, and wait until it is empty"),
        ("leasehold hosts drain host-1 host-2 --to host-3", "two hosts, to a third"),
    ),
)
@click.argument("names", nargs=-1, required=True)
@admin_option
@json_option
@click.option("--to", "targets", multiple=True, metavar="NAME", help="only to these (default: any other host)")
@click.option("--concurrency", default=4, show_default=True, type=click.IntRange(1, 1_000), help="moves in parallel")
@click.option("--wait", "waits", is_flag=True, help="wait until the job has finished")
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1), help="seconds that --wait waits; the job continues then"
)
def drain(
    names: tuple[str, ...],
    admin: str,
    as_json: bool,
    targets: tuple[str, ...],
    concurrency: int,
    waits: bool,
    timeout_s: int | None,
) -> int:
    """Move all objects away from the hosts NAMES. Their segments stay readable, and take no new objects.

    The job is recorded: a successor continues it. Exits with 1 if the job failed, or has not finished in time.
    """
    leader = leader_of(admin)[1].admin
    body = {"segments": list(names), "target_segments": list(targets), "max_concurrency": concurrency}
    job = call(leader, "/api/v1/drain_jobs", dict[str, object], body=body, timeout_s=OPERATE_TIMEOUT_S)["job_id"]
    state = _job(leader, str(job))
    end_s = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
    while waits and state.status_name in RUNNING and time.monotonic() < end_s:
        time.sleep(POLL_S)
        leader = leader_of(admin)[1].admin  # it may be another one by now
        state = _job(leader, str(job))
    if as_json:
        print_json(state)
    else:
        _print_job(state)
    failed = state.status_name in ("FAILED", "CANCELED") or (waits and state.status_name in RUNNING)
    return ExitCode.FAILED if failed else ExitCode.OK


@hosts.command(cls=Explained, examples=(("leasehold hosts cancel 5-18", "the job that `hosts drain` named"),))
@click.argument("job")
@admin_option
@json_option
def cancel(job: str, admin: str, as_json: bool) -> None:
    """Cancel the drain JOB: its segments take new objects again. Nothing is moved back."""
    leader, query = leader_of(admin)[1].admin, urlencode({"job_id": job})
    call(leader, f"/api/v1/drain_jobs/cancel?{query}", dict[str, object], body={}, timeout_s=OPERATE_TIMEOUT_S)
    state = _job(leader, job)
    if as_json:
        print_json(state)
    else:
        _print_job(state)


def _print_job(state: DrainJobInfo) -> None:
    click.echo(
        f"job {state.job_id}: {state.status_name.lower()}, {state.succeeded_units} objects moved "
        f"({format_bytes(state.migrated_bytes)}), {state.failed_units} failed"
    )


def _job(leader: str, job: str) -> DrainJobInfo:
    return call(leader, f"/api/v1/drain_jobs/query?{urlencode({'job_id': job})}", DrainJobInfo)


@hosts.command(cls=Explained, examples=(("leasehold hosts remove 10.0.0.21:7500", "after `hosts drain --wait`"),))
@click.argument("name")
@admin_option
@json_option
@click.option("--force", is_flag=True, help="also if objects are only there, which are lost then")
def remove(name: str, admin: str, as_json: bool, force: bool) -> None:
    """Unmount the segments of the host NAME. Its process keeps running until you stop it."""
    body = {"name": name, "force": "true" if force else "false"}
    outcome = call(leader_of(admin)[1].admin, "/api/hosts/remove", Operated, body=body, timeout_s=OPERATE_TIMEOUT_S)
    print_outcome(outcome, as_json)
