"""`leasehold doctor`: examine a cluster, and name every problem with its remedy."""

from __future__ import annotations

import asyncio
import contextlib
import time

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from leasehold.admin.checkup import ClockReading, NodeCheckup, ShownConfig
from leasehold.admin.doctor import ClockSample, ClusterCheckup, ExaminedNode, diagnose
from leasehold.admin.status import ClusterStatus, NodeStatus
from leasehold.admin.worries import Worry
from leasehold.base.errors import LeaseholdError, PeerError
from leasehold.base.text import printable
from leasehold.cli.exit_codes import ExitCode
from leasehold.cli.help import Explained
from leasehold.cli.operate import (
    addresses,
    admin_option,
    call,
    credentials,
    first_answering,
    in_parallel,
    json_option,
    print_json,
)

CHECKUP_TIMEOUT_S = 20.0  # it writes to a disk that may be slow
CLOCK_S = 1.5  # between two readings of a clock: a rate that differs by 1 % shows as 15 ms
CLOCK_TRIES = 3  # the reading with the shortest round trip counts
HANDSHAKE_S = 2.0


class Diagnosis(msgspec.Struct):
    """The answer of the command."""

    cluster: str
    nodes: tuple[str, ...]
    findings: tuple[Worry, ...]


def gather(admin: str) -> ClusterCheckup:
    """Ask every registered node; if the store does not answer, the nodes given by --admin."""
    cluster, problem = None, ""
    try:
        _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    except PeerError as error:
        problem = str(error)
    if cluster is not None:
        wanted = [(peer.name, peer.admin) for peer in cluster.nodes]
    else:
        wanted = [("", address) for address in addresses(admin)]
    nodes = in_parallel(_examine, wanted)
    if cluster is None:
        nodes = [node for node in nodes if not node.problem or node.certificate_end_s]
        if not nodes:
            raise PeerError(problem)
    return ClusterCheckup(now_s=int(time.time()), nodes=tuple(nodes), cluster=cluster, problem=problem)


def _examine(named: tuple[str, str]) -> ExaminedNode:
    name, admin = named
    end_s = _certificate_end_s(admin)
    try:
        first = _clock(admin)
        began_s = time.monotonic()
        status = call(admin, "/api/status", NodeStatus)
        config = call(admin, "/api/config", ShownConfig)
        checkup = call(admin, "/api/checkup", NodeCheckup, timeout_s=CHECKUP_TIMEOUT_S)
        time.sleep(max(0.0, began_s + CLOCK_S - time.monotonic()))
        last = _clock(admin)
    except PeerError as error:
        return ExaminedNode(name=name or admin, admin=admin, problem=str(error), certificate_end_s=end_s)
    return ExaminedNode(
        name=status.name,
        admin=admin,
        status=status,
        checkup=checkup,
        config=config,
        clocks=(first, last),
        certificate_end_s=end_s,
    )


def _clock(admin: str) -> ClockSample:
    samples = []
    for _ in range(CLOCK_TRIES):
        sent_ns = time.monotonic_ns()
        reading = call(admin, "/api/clock", ClockReading)
        samples.append(ClockSample(sent_ns // 1_000, time.monotonic_ns() // 1_000, reading))
    return min(samples, key=lambda sample: sample.round_trip_us)


def _certificate_end_s(admin: str) -> int:
    """Read without verifying, so that an expired certificate is named, too. 0: no TLS, or no answer."""
    from leasehold.runtime.certificate_end import certificate_end_s

    if credentials().tls() is None:
        return 0
    host, _, port = admin.rpartition(":")
    with contextlib.suppress(LeaseholdError):
        return asyncio.run(certificate_end_s(host.strip("[]"), int(port), HANDSHAKE_S))
    return 0


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print each finding: what, why it matters, what to type."""
    names = ", ".join(diagnosis.nodes)
    for finding in diagnosis.findings:
        bullet = "[bold red]![/]" if finding.serious else "[bold yellow]-[/]"
        console.print(f"{bullet} {escape(printable(finding.what))}", soft_wrap=True)
        if finding.why:
            console.print(f"    why:  {escape(printable(finding.why))}", soft_wrap=True)
        console.print(f"    type: {escape(printable(finding.remedy))}", soft_wrap=True)
    count = len(diagnosis.findings)
    result = "no problems" if not count else "1 problem" if count == 1 else f"{count} problems"
    console.print(f"{escape(printable(diagnosis.cluster))} ({escape(printable(names))}): {result} found")


@click.command(
    cls=Explained,
    examples=(
        ("leasehold doctor --admin 10.0.0.11:8700,10.0.0.12:8700", "a remote cluster"),
        ("leasehold doctor --json | jq -r '.findings[].check'", "the kinds of problems, for scripts"),
    ),
)
@admin_option
@json_option
def doctor(admin: str, as_json: bool) -> int:
    """Examine the store, clocks, disks, limits, settings, certificates and storage hosts, and name each problem.

    It takes about two seconds, and changes nothing: each node writes a small file to its disk and deletes it. Exits
    with 0 if nothing was found, and with 3 if there are problems.
    """
    found = gather(admin)
    cluster = found.cluster.cluster if found.cluster is not None else "the cluster"
    diagnosis = Diagnosis(cluster, tuple(node.name for node in found.nodes), tuple(diagnose(found)))
    if as_json:
        print_json(diagnosis)
    else:
        show(diagnosis, Console(highlight=False))
    return ExitCode.PROBLEMS if diagnosis.findings else ExitCode.OK
