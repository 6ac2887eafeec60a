"""`leasehold`: one command. Each subcommand's module is imported when it is used."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NoReturn

import click

import leasehold as package
from leasehold.base.errors import InvalidArgument, LeaseholdError, NotFound, ResourceUnavailable, SettingError
from leasehold.cli.exit_codes import ExitCode

# name -> module and attribute
COMMANDS = {
    "adopt": "leasehold.cli.adopt:adopt",
    "cache": "leasehold.cli.cache:cache",
    "certs": "leasehold.cli.certs:certs",
    "config": "leasehold.cli.config:config",
    "demo": "leasehold.cli.demo.command:demo",
    "doctor": "leasehold.cli.doctor:doctor",
    "chaos": "leasehold.cli.chaos:chaos",
    "elect": "leasehold.cli.elect:elect",
    "export": "leasehold.cli.export:export_index",
    "failover": "leasehold.cli.failover:failover",
    "feature-level": "leasehold.cli.feature_level:feature_level",
    "history": "leasehold.cli.history:history",
    "host": "leasehold.cli.host:host",
    "hosts": "leasehold.cli.hosts:hosts",
    "import": "leasehold.cli.export:import_index",
    "journal": "leasehold.cli.journal:journal",
    "lock": "leasehold.cli.lock:lock",
    "log": "leasehold.cli.log_level:log",
    "mooncake-master": "leasehold.cli.mooncake_master:mooncake_master",
    "node": "leasehold.cli.node:node",
    "nodes": "leasehold.cli.nodes:nodes",
    "objects": "leasehold.cli.objects:objects",
    "pause": "leasehold.cli.pause:pause",
    "plan": "leasehold.cli.plan:plan_command",
    "resume": "leasehold.cli.pause:resume",
    "sim": "leasehold.cli.sim:sim",
    "status": "leasehold.cli.status:status",
    "store": "leasehold.cli.store:store",
    "switchover": "leasehold.cli.switchover:switchover",
    "top": "leasehold.cli.top.command:top",
    "up": "leasehold.cli.up:up",
    "version": "leasehold.cli.version:version",
}
# What `leasehold --help` lists, by task. A test compares the lines with those of the commands, which are not imported.
CHAPTERS = {
    "Run": {
        "up": "Run a complete local cluster: a store, two nodes and two storage hosts, on loopback.",
        "demo": "Break a local cluster in five ways, and check every answer.",
        "node": "Run one node of a cluster: the master for Mooncake's clients, or a hot standby.",
        "mooncake-master": (
            "Run one node with the command line of `mooncake_master`, so that a launch script changes one word."
        ),
        "host": "Lend a segment of this machine's memory to the pool, over TCP, until SIGTERM or Ctrl-C.",
        "store": "Serve an etcd v3 compatible store from one process: durable in one directory, without replication.",
        "cache": "Serve and use a cache without stale reads.",
    },
    "Inspect and operate": {
        "status": "Show the leader, the state of every node, and problems that need attention.",
        "top": "Show the cluster live: nodes, leader lease, pool, rates, and problems.",
        "doctor": (
            "Examine the store, clocks, disks, limits, settings, certificates and storage hosts, and name each problem."
        ),
        "objects": "List objects, show one, and explain why one is here or absent.",
        "nodes": "List the nodes; restart, rebuild or remove one.",
        "config": "Show, check and compare the settings of nodes.",
        "log": "Show or change from which level on the nodes log.",
        "hosts": "List the storage hosts, empty one, and remove it.",
        "history": "Print the changes of leadership and the orders of operators: when, which node, and why.",
        "switchover": "Move the leadership to a standby.",
        "failover": "Let a node lead although it lacks records, when no node leads and none can be complete again.",
        "pause": "Pause automatic failover until `resume`.",
        "resume": "Resume automatic failover after `pause`.",
        "feature-level": "Show or switch the feature level: which kinds of records the cluster may write.",
        "journal": "Print the contents of the journal.",
        "export": "Write the whole index to FILE.",
        "import": "Load the index in FILE into an empty cluster.",
        "adopt": "Take over the objects of a running mooncake_master into an empty cluster.",
    },
    "Coordinate and plan": {
        "lock": "Hold the lock NAME while COMMAND runs, and exit with COMMAND's exit code.",
        "elect": "Campaign in election NAME with VALUE, and lead until a signal arrives.",
        "plan": "Compute the worst-case outages for given lease times, and check the times.",
    },
    "Other": {
        "certs": "Make certificates for mutual TLS in DIRECTORY, and the authority that signs them if there is none.",
        "sim": "Search simulated runs for one that breaks a promise (P1 to P7).",
        "chaos": "Run a real cluster on this machine, break it for some minutes, and check every answer.",
        "version": "Print the version.",
    },
}
# They log nothing, and the logging library takes longer to import than everything else here.
WITHOUT_LOG = {"version", "--version", "--help", "-h"}
HELP_CHARACTERS_MAX = 200  # of a command's first sentence, which is shown whole


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for lines in CHAPTERS.values() for name in lines]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        # A running command may have something to undo.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, _terminated)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for chapter, lines in CHAPTERS.items():
            with formatter.section(chapter):
                formatter.write_dl(list(lines.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package.__version__, prog_name="leasehold", message="%(prog)s %(version)s")
def leasehold() -> None:
    """Run and operate Leasehold: a highly available master for Mooncake, locks and elections, a coherent cache.

    To try it: run `leasehold up`, then `leasehold status` in another terminal.
    """


def main() -> None:
    """Run the command. A failure prints one readable line; only a bug prints a traceback.

    Exit codes: 0; 1 if the command failed; 2 if its arguments or settings are wrong; 130 after Ctrl-C; 143 after
    SIGTERM. Commands that run until a signal (node, store, host, up, cache serve) shut down in order and exit with 0.
    """
    try:
        if WITHOUT_LOG.isdisjoint(sys.argv[1:2]):
            from leasehold.runtime import log as logs

            logs.configure()  # to standard error: standard output is for what a command prints
        code = leasehold.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _interrupted()
    except LeaseholdError as error:
        if isinstance(error, NotFound):
            _fail(str(error), ExitCode.NOT_FOUND)
        wrong_usage = isinstance(error, SettingError | InvalidArgument) and not isinstance(error, ResourceUnavailable)
        _fail(str(error), 2 if wrong_usage else 1)
    except OSError as error:  # a file, a directory or a port that is unavailable
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")


def _fail(message: str, code: int = 1) -> NoReturn:
    click.echo(f"leasehold: {message}", err=True)
    sys.exit(code)


def _interrupted() -> NoReturn:
    """Exit with 130. Python itself would not, if the signal arrived in generated code such as that of dataclasses."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(128 + signal.SIGINT)


def _terminated(number: int, frame: object) -> NoReturn:
    """Like Ctrl-C: work in progress is undone on the way out."""
    sys.exit(128 + number)
