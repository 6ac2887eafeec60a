"""`leasehold plan`: the worst-case outages that follow from a choice of lease times."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from leasehold.base.errors import InvalidArgument
from leasehold.base.units import format_duration_ms, parse_duration_ms
from leasehold.cli.help import Explained
from leasehold.leases.arithmetic import DRIFT_PPM_DEFAULT, PPM
from leasehold.leases.planner import STORES, Plan, Store, plan
from leasehold.leases.timeline import draw


class Duration(click.ParamType[int]):
    """`25s`, `500ms`, `5m`: a duration with its unit, as milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ms(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


@click.command(
    "plan",
    cls=Explained,
    examples=(
        ("leasehold plan --lease 3s --renew 1s --store etcd", "the leader lease with the defaults of `leasehold node`"),
        (
            "leasehold plan --lease 25s --renew 8s --restart 10s --above 10s --plot",
            "a lease that depends on another lease, with a timeline",
        ),
    ),
)
@click.option("--lease", type=Duration(), required=True, help="L: term of the lease")
@click.option("--renew", type=Duration(), help="T: interval between renewals (default: a third of the lease)")
@click.option(
    "--restart",
    type=Duration(),
    default="0s",
    show_default=True,
    help="D: downtime of the granting service during a restart",
)
@click.option("--above", type=Duration(), help="lease that the granting service itself depends on")
@click.option(
    "--restart-above", type=Duration(), help="D of the service that grants --above (default: two thirds of --above)"
)
@click.option(
    "--store", type=click.Choice(STORES), default="embedded", show_default=True, help="store that grants the lease"
)
@click.option(
    "--drift",
    type=float,
    default=DRIFT_PPM_DEFAULT / PPM,
    show_default=True,
    help="largest difference in the rate of two clocks, as a fraction",
)
@click.option("--round-trip", type=Duration(), default="10ms", show_default=True, help="round-trip time to the store")
@click.option(
    "--retry", type=Duration(), default="100ms", show_default=True, help="delay before a failed call is retried"
)
@click.option("--election-timeout", type=Duration(), default="1s", show_default=True, help="election timeout of etcd")
@click.option("--json", "as_json", is_flag=True, help="print JSON, for programs")
@click.option("--plot", is_flag=True, help="draw a timeline")
def plan_command(
    lease: int,
    renew: int | None,
    restart: int,
    above: int | None,
    restart_above: int | None,
    store: Store,
    drift: float,
    round_trip: int,
    retry: int,
    election_timeout: int,
    as_json: bool,
    plot: bool,
) -> None:
    """Compute the worst-case outages for given lease times, and check the times. Exits with 1 if a rule is broken."""
    try:
        found = plan(
            lease_ms=lease,
            renew_ms=renew,
            restart_ms=restart,
            above_ms=above,
            restart_above_ms=restart_above,
            store=store,
            drift_ppm=round(drift * PPM),
            round_trip_ms=round_trip,
            retry_ms=retry,
            election_timeout_ms=election_timeout,
        )
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        _print(found)
    if plot and not as_json:
        click.echo()
        for line in draw(found):
            click.echo(line)
    if found.broken:
        sys.exit(1)


def _print(found: Plan) -> None:
    lines = [
        ("outage after the death of the holder", found.outage_holder_death_s),
        ("same, with a restart of the granting service", found.outage_with_restart_s),
        ("holder stops, after its last renewal", found.stop_before_s),
        ("shortest lease that survives this restart", found.lease_min_s),
    ]
    if found.gap_above_s is None:
        lines.append(("shortest lease that may depend on this one", found.dependent_lease_min_s))
    else:
        lines.append(("longest gap of the lease above", found.gap_above_s))
        lines.append(("shortest lease that outlasts it", found.dependent_lease_min_s))
        lines.append(("  by the rule of thumb (2.5 times)", found.dependent_rule_of_thumb_s or 0.0))
        lines.append(("  and the outage with that", found.outage_rule_of_thumb_s or 0.0))
    for label, seconds in lines:
        click.echo(f"{label:<44} {format_duration_ms(round(seconds * 1_000)):>9}")
    click.echo()
    for law in found.laws:
        verdict = click.style("holds ", fg="green") if law.holds else _breach(law.level)
        click.echo(f"{verdict} {law.name}: {law.why}")


def _breach(level: str) -> str:
    return click.style("BROKEN", fg="red", bold=True) if level == "must" else click.style("risky ", fg="yellow")
