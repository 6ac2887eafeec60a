"""`leasehold`: one command, whose parts are loaded only when asked for."""

from __future__ import annotations

import importlib
import sys

import click

from leasehold.base.errors import LeaseholdError

# name -> module and attribute. One file a command keeps `leasehold --help` fast and the files small.
COMMANDS = {
    "elect": "leasehold.cli.elect:elect",
    "export": "leasehold.cli.export:export_index",
    "history": "leasehold.cli.history:history",
    "host": "leasehold.cli.host:host",
    "lock": "leasehold.cli.lock:lock",
    "import": "leasehold.cli.export:import_index",
    "journal": "leasehold.cli.journal:journal",
    "node": "leasehold.cli.node:node",
    "pause": "leasehold.cli.pause:pause",
    "resume": "leasehold.cli.pause:resume",
    "status": "leasehold.cli.status:status",
    "switchover": "leasehold.cli.switchover:switchover",
    "up": "leasehold.cli.up:up",
    "cache": "leasehold.cli.cache:cache",
    "plan": "leasehold.cli.plan:plan_command",
    "store": "leasehold.cli.store:store",
    "sim": "leasehold.cli.sim:sim",
    "version": "leasehold.cli.version:version",
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def leasehold() -> None:
    """Keeps things by lease: a lock, a leadership, a cached value, a place in a memory pool."""


def main() -> None:
    """Run the command; an error of ours is one readable line, never a traceback."""
    try:
        leasehold()
    except LeaseholdError as error:
        click.echo(f"leasehold: {error}", err=True)
        sys.exit(1)
