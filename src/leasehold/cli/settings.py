"""Flags out of a settings model: one declaration serves the file, the environment and the command line."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click

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
# One file may serve all commands of a machine: each reads its own sections, and knows the others' by name.
SECTIONS = ("node", "index", "ha", "guardian", "wire", "store", "host", "cache")

# Variables of ours that are no settings: flags of other commands, what `lock` tells its command, what tests read.
_OTHER_VARIABLES = tuple(
    f"{ENVIRONMENT_PREFIX}_{name}" for name in ("ADMIN", "COORD", "LOCK_TOKEN", "ETCD", "MOONCAKE_CACHE")
)


class SettingOption(click.Option):
    """A flag made from a setting; its section is the first part of its name."""

    @property
    def section(self) -> str:
        return (self.name or "").partition("__")[0]


def settings_options(model: type[Any], section: str) -> Callable[[F], F]:
    """Give a click command `--config FILE` and one flag for every setting of `model`."""
    return sections_options({section: model})


def sections_options(models: Mapping[str, type[Any]]) -> Callable[[F], F]:
    """The same for several sections of one file; `--help` lists them in this order."""

    def decorate(original: F) -> F:
        command = _or_show(original, models)
        for section, model in reversed(list(models.items())):
            for name, (field, spec) in reversed(specs(model).items()):
                command = _flag(model, section, name, field, spec)(command)
        command = click.option(
            "--show-settings",
            _SHOW,
            is_flag=True,
            help="print every setting, its value and where that came from, and exit",
        )(command)
        return click.option(
            "--config",
            _CONFIG,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help=f"TOML file with a section {' '.join(f'[{section}]' for section in models)}",
        )(command)

    return decorate


def _or_show(command: F, models: Mapping[str, type[Any]]) -> F:
    """The command, or, if that is asked for, only what it would go by. Neither with a misspelt variable."""

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


def resolve_options(model: type[T], section: str, options: dict[str, Any]) -> Resolved[T]:
    """What `settings_options` collected, put together with file and environment."""
    file: Path | None = options.get(_CONFIG)
    flags = {name: options.get(f"{section}__{name}") for name in specs(model)}
    try:
        toml = file.read_text() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} cannot be read as a TOML file: {error}") from None
    try:
        check_sections(toml, str(file), SECTIONS)
        return resolve(
            model,
            section,
            toml=toml,
            toml_name=str(file) if file else "leasehold.toml",
            environment=os.environ,
            flags=flags,
        )
    except SettingError as error:
        raise click.UsageError(str(error)) from None
