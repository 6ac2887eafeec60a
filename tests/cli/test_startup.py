"""Commands import only what they use: `leasehold version` and `leasehold --help` start quickly."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

import click
import pytest
from tests.measured import until_met

from leasehold.cli.main import CHAPTERS, COMMANDS, HELP_CHARACTERS_MAX, leasehold

HEAVY = ("asyncio", "structlog", "rich", "msgspec", "aiohttp", "google.protobuf", "uvloop", "leasehold.cli.up")


def test_the_help_lists_every_command_with_its_own_help_line() -> None:
    context = click.Context(leasehold)
    listed = {name: line for lines in CHAPTERS.values() for name, line in lines.items()}
    commands = {name: leasehold.get_command(context, name) for name in COMMANDS}
    lines = {name: each.get_short_help_str(HELP_CHARACTERS_MAX) for name, each in commands.items() if each}
    assert listed == lines, "edit CHAPTERS in cli/main.py"
    assert sum(map(len, CHAPTERS.values())) == len(COMMANDS)


@pytest.mark.parametrize("argument", ["version", "--version", "--help"])
def test_nothing_heavy_is_imported(argument: str) -> None:
    script = f"""
import sys
sys.argv = ["leasehold", {argument!r}]
from leasehold.cli.entry import main
try:
    main()
finally:
    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert run.stderr.strip() == "[]"
    assert run.stdout


def cpu_s(*argv: str) -> float:
    process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


@pytest.mark.alone
def test_the_version_costs_little() -> None:
    for seconds in until_met(0.08, "s of CPU for `leasehold version`, the median of 10"):
        seconds.append(statistics.median(cpu_s("-m", "leasehold", "version") for _ in range(10)))
