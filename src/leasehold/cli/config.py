"""`leasehold config`: the settings of running nodes, compared with each other and with a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
import msgspec

from leasehold.admin.checkup import ShownConfig, different_settings
from leasehold.admin.status import ClusterStatus
from leasehold.base.errors import SettingError
from leasehold.base.settings import check_sections, resolve
from leasehold.base.text import printable
from leasehold.cli.exit_codes import ExitCode
from leasehold.cli.help import Chapters, Explained
from leasehold.cli.operate import admin_option, call, first_answering, in_parallel, json_option, node_named, print_json
from leasehold.cli.settings import SECTIONS
from leasehold.node.settings import NodeConfig

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


class Difference(msgspec.Struct):
    """A setting with several values."""

    name: str
    values: dict[str, str]  # by node; "file" is the file


@click.group(cls=Chapters)
def config() -> None:
    """Show, check and compare the settings of nodes."""


@config.command(
    cls=Explained,
    examples=(
        ("leasehold config show --changed", "the settings of the node that answers first, without the defaults"),
        ("leasehold config show --node b --json", "all settings of node b"),
    ),
)
@admin_option
@json_option
@click.option("--node", "name", default="", metavar="NAME", help="the node (default: the first that answers)")
@click.option("--changed", is_flag=True, help="only settings that differ from their default")
def show(admin: str, as_json: bool, name: str, changed: bool) -> None:
    """Show the settings of a running node. Passwords are masked."""
    if name:
        found = call(node_named(admin, name), "/api/config", ShownConfig)
    else:
        _, found = first_answering(admin, "/api/config", ShownConfig)
    settings = tuple(each for each in found.settings if not (changed and each.is_default))
    if as_json:
        print_json(ShownConfig(found.node, settings))
        return
    for each in settings:
        default = "" if each.is_default else f"(default {each.default or 'empty'})"
        click.echo(f"{each.name:<34} {printable(each.value) or '-':<26} {default}".rstrip())


@config.command(
    cls=Explained, examples=(("leasehold config check /etc/leasehold.toml", "before a node is started with it"),)
)
@file_argument
@json_option
def check(file: Path, as_json: bool) -> int:
    """Check the settings in FILE as a node does at its start: names, values, bounds, and rules between them.

    Exits with 2 if a node would refuse it, and with 3 if there are warnings.
    """
    from leasehold.node import timing_rules

    made = _of_file(file)
    timing_rules.check(made)
    warnings = [f"{law.name}: {law.why}" for law in timing_rules.leadership(made).risky] + timing_rules.waivers(made)
    if as_json:
        print_json({"warnings": warnings, "worst_cases": timing_rules.worst_cases(made)})
    else:
        for line in warnings:
            click.echo(f"warning: {line}")
        for case, longest in timing_rules.worst_cases(made).items():
            click.echo(f"longest outage if {case.replace('_', ' ')}: {longest}")
    return ExitCode.PROBLEMS if warnings else ExitCode.OK


@config.command(
    cls=Explained,
    examples=(
        ("leasehold config diff", "settings that differ between the nodes"),
        ("leasehold config diff --file /etc/leasehold.toml", "and from a file: what a restart would change"),
    ),
)
@admin_option
@json_option
@click.option(
    "--file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="settings file to compare with"
)
@click.option("--all", "everything", is_flag=True, help="also names, addresses and files, which each node has its own")
def diff(admin: str, as_json: bool, file: Path | None, everything: bool) -> int:
    """Compare the settings of all nodes. Exits with 3 if there is a difference."""
    _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    configs = in_parallel(lambda peer: call(peer.admin, "/api/config", ShownConfig), cluster.nodes)
    if file is not None:
        from leasehold.node.shown_settings import shown_config

        configs.append(ShownConfig("file", shown_config(_of_file(file)).settings))
    values = {
        each.node: {one.name: one.value for one in each.settings} if everything else each.shared() for each in configs
    }
    found = [Difference(name, by_node) for name, by_node in different_settings(values)]
    if as_json:
        print_json(found)
    else:
        for one in found:
            click.echo(f"{one.name:<34} " + ", ".join(f"{at} {printable(to) or '-'}" for at, to in one.values.items()))
        if not found:
            click.echo(f"the settings of {', '.join(values)} are the same")
    return ExitCode.PROBLEMS if found else ExitCode.OK


def _of_file(file: Path) -> NodeConfig:
    """The settings of a node that is started with this file and nothing else."""
    text = file.read_text()
    try:
        check_sections(text, str(file), SECTIONS)
        sections = {
            item.name: resolve(type(getattr(NodeConfig(), item.name)), item.name, toml=text, toml_name=str(file)).values
            for item in dataclasses.fields(NodeConfig)
        }
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    return NodeConfig(**sections)
