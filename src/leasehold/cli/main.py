"""`leasehold`: one command, whose parts are loaded only when asked for."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NoReturn

import click

import leasehold as package
from leasehold.base.errors import InvalidArgument, LeaseholdError, ResourceUnavailable, SettingError
from leasehold.cli.help import Chapters

# name -> module and attribute. One file a command keeps `leasehold --help` fast and the files small.
COMMANDS = {
    "cache": "leasehold.cli.cache:cache",
    "elect": "leasehold.cli.elect:elect",
    "export": "leasehold.cli.export:export_index",
    "history": "leasehold.cli.history:history",
    "host": "leasehold.cli.host:host",
    "import": "leasehold.cli.export:import_index",
    "journal": "leasehold.cli.journal:journal",
    "lock": "leasehold.cli.lock:lock",
    "node": "leasehold.cli.node:node",
    "pause": "leasehold.cli.pause:pause",
    "plan": "leasehold.cli.plan:plan_command",
    "resume": "leasehold.cli.pause:resume",
    "sim": "leasehold.cli.sim:sim",
    "status": "leasehold.cli.status:status",
    "store": "leasehold.cli.store:store",
    "switchover": "leasehold.cli.switchover:switchover",
    "up": "leasehold.cli.up:up",
    "version": "leasehold.cli.version:version",
}
# How `leasehold --help` lists them: by what somebody wants to do.
CHAPTERS = {
    "Run": ("up", "node", "host", "store", "cache"),
    "Inspect and operate": ("status", "history", "switchover", "pause", "resume", "journal", "export", "import"),
    "Coordinate and plan": ("lock", "elect", "plan"),
    "Other": ("sim", "version"),
}


class LazyGroup(Chapters):
    """A group that imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in CHAPTERS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        # From here on there may be something to undo.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, _terminated)
        return command

    def chapters(self, ctx: click.Context) -> dict[str, tuple[str, ...]]:
        return CHAPTERS


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package.__version__, prog_name="leasehold", message="%(prog)s %(version)s")
def leasehold() -> None:
    """Run and operate Leasehold: a highly available master for Mooncake, locks and elections, a coherent cache.

    To try it: run `leasehold up`, then `leasehold status` in another terminal.
    """


def main() -> None:
    """Run the command; what goes wrong is one readable line, never a traceback, unless it is a bug of ours.

    Exit codes: 0; 1 if it could not be done, 2 if it was asked for in a wrong way; 130 after Ctrl-C and 143 after
    SIGTERM. Commands that run until they are told to end (node, store, host, up, cache serve) end in order with 0.
    """
    try:
        from leasehold.runtime import log as logs

        logs.configure()  # to standard error: what a command prints is for pipes
        code = leasehold.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _interrupted()
    except LeaseholdError as error:
        asked_wrongly = isinstance(error, SettingError | InvalidArgument) and not isinstance(error, ResourceUnavailable)
        _fail(str(error), 2 if asked_wrongly else 1)
    except OSError as error:  # an unavailable file, directory or port
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")


def _fail(message: str, code: int = 1) -> NoReturn:
    click.echo(f"leasehold: {message}", err=True)
    sys.exit(code)


def _interrupted() -> NoReturn:
    """All is undone. Python itself would not say 130 if it was hit in code made from a text, as that of dataclasses."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(128 + signal.SIGINT)


def _terminated(number: int, frame: object) -> NoReturn:
    """As Ctrl-C: whatever is being done is undone on the way out."""
    sys.exit(128 + number)
