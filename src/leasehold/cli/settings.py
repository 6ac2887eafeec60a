"""Command-line flags from a settings model: one declaration serves the file, the environment and the flags."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from leasehold.base import renamed
from leasehold.base.errors import SettingError
from leasehold.base.settings import (
    ENVIRONMENT_PREFIX,
    Resolved,
    Spec,
    check_environment,
    check_sections,
    resolve,
    specs,
)

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_CONFIG = "settings__config"
_SHOW = "settings__show"
# The sections of the settings file, with their headings in help texts. One file may configure all commands of a
# machine: each command reads its own sections and accepts the others.
SECTIONS = {
    "node": "Name, addresses, store and directories",
    "index": "Leases, pins, eviction",
    "ha": "Leadership, replication, journal and snapshots",
    "guardian": "Supervision of the worker process",
    "wire": "Limits for client connections",
    "events": "Events for routers",
    "security": "Identities and roles",
    "tls": "Certificates",
    "store": "Addresses, directory and limits",
    "host": "Memory, addresses and limits",
    "cache": "Leases, store and addresses",
}

# Our variables that are not settings: flags of other commands, the fencing token of `lock`, variables of the tests.
_OTHER_VARIABLES = tuple(
    f"{ENVIRONMENT_PREFIX}_{name}"
    for name in (
        "ADMIN",
        "TOKEN_FILE",
        "TLS_CA",
        "TLS_CERT",
        "TLS_KEY",
        "TLS_PEER_NAME",
        "COORD",
        "LOCK_TOKEN",
        "ETCD",
        "MOONCAKE_CACHE",
    )
)


class SettingOption(click.Option):
    """A flag made from a setting; the first part of its parameter name is the section."""

    @property
    def section(self) -> str:
        return (self.name or "").partition("__")[0]

    @property
    def heading(self) -> str:
        return f"{SECTIONS[self.section]}: [{self.section}]"


def settings_options(model: type[Any], section: str) -> Callable[[F], F]:
    """Add `--config FILE`, `--show-settings` and one flag per setting of `model` to a click command."""
    return sections_options({section: model})


def sections_options(models: Mapping[str, type[Any]]) -> Callable[[F], F]:
    """Add the same for several sections of one file; `--help` lists them in this order."""

    def decorate(original: F) -> F:
        command = _or_show(original, models)
        for section, model in reversed(list(models.items())):
            for name, (field, spec) in reversed(specs(model).items()):
                command = _flag(model, section, name, field, spec)(command)
            for old in renamed.SETTINGS.get(section, {}):
                command = _old_flag(section, old)(command)
        command = click.option(
            "--show-settings",
            _SHOW,
            is_flag=True,
            help="print every setting with its value and its origin, then exit",
        )(command)
        return click.option(
            "--config",
            _CONFIG,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help=f"TOML file with the settings, in {' '.join(f'[{section}]' for section in models)}",
        )(command)

    return decorate


def _or_show(command: F, models: Mapping[str, type[Any]]) -> F:
    """Wrap the command: reject misspelt variables first, and with `--show-settings` only print the settings."""

    @functools.wraps(command)
    def run(**options: Any) -> Any:
        try:
            check_environment(os.environ, models, SECTIONS, _OTHER_VARIABLES)
        except SettingError as error:
            raise click.UsageError(str(error)) from None
        if not options.pop(_SHOW):
            return command(**options)
        for section, model in models.items():
            for name, value, origin in resolve_options(model, section, options).table():
                click.echo(f"{section + '.' + name:<34} {value or '-':<26} {origin}")
        return None

    return cast("F", run)


def _flag(model: type[Any], section: str, name: str, field: str, spec: Spec) -> Callable[[F], F]:
    default = spec.show(getattr(model, field))
    variable = f"{ENVIRONMENT_PREFIX}_{section.upper()}_{name.upper()}"
    facts = [f"default {default}" if default else "", spec.bounds(), variable]
    return click.option(
        f"--{name.replace('_', '-')}",
        f"{section}__{name}",
        metavar=spec.unit.upper() if not spec.choices else spec.unit,
        default=None,
        cls=SettingOption,
        help=f"{spec.help} ({'; '.join(fact for fact in facts if fact)})",
    )


def _old_flag(section: str, old: str) -> Callable[[F], F]:
    """The old name of a renamed setting: accepted, but not listed by `--help`."""
    return click.option(f"--{old.replace('_', '-')}", f"{section}__{old}", default=None, cls=SettingOption, hidden=True)


def resolve_options(model: type[T], section: str, options: dict[str, Any]) -> Resolved[T]:
    """Combine the flags in `options` with the file and the environment; print a warning for each renamed setting."""
    file: Path | None = options.get(_CONFIG)
    names = (*specs(model), *renamed.SETTINGS.get(section, {}))
    flags = {name: options.get(f"{section}__{name}") for name in names}
    try:
        toml = file.read_text() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"'{file}' cannot be read as a TOML file: {error}") from None
    try:
        check_sections(toml, str(file), SECTIONS)
        resolved = resolve(
            model,
            section,
            toml=toml,
            toml_name=str(file) if file else "leasehold.toml",
            environment=os.environ,
            flags=flags,
        )
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    for line in resolved.warnings:
        click.echo(f"leasehold: warning: {line}", err=True)
    return resolved
