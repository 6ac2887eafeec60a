"""Flags out of a settings model: one declaration serves the file, the environment and the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from leasehold.base.errors import SettingError
from leasehold.base.settings import ENVIRONMENT_PREFIX, Resolved, resolve, specs

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def settings_options(model: type[Any], section: str) -> Callable[[F], F]:
    """Give a click command `--config FILE` and one flag for every setting of `model`."""

    def decorate(command: F) -> F:
        for name, (field, spec) in reversed(specs(model).items()):
            default = spec.show(getattr(model, field)) or '""'
            variable = f"{ENVIRONMENT_PREFIX}_{section.upper()}_{name.upper()}"
            bounds = f", {spec.show(spec.low)} to {spec.show(spec.high)}" if spec.low is not None else ""
            option = click.option(
                f"--{name.replace('_', '-')}",
                f"{section}__{name}",
                metavar=spec.unit.upper() if not spec.choices else spec.unit,
                default=None,
                help=f"{spec.help} (default {default}{bounds}; {variable})",
            )
            command = option(command)
        return click.option(
            "--config",
            f"{section}__config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help=f"TOML file with a [{section}] section",
        )(command)

    return decorate


def resolve_options(model: type[T], section: str, options: dict[str, Any]) -> Resolved[T]:
    """What `settings_options` collected, put together with file and environment."""
    file: Path | None = options.get(f"{section}__config")
    flags = {name: options.get(f"{section}__{name}") for name in specs(model)}
    try:
        return resolve(
            model,
            section,
            toml=file.read_text() if file else "",
            toml_name=str(file) if file else "leasehold.toml",
            environment=os.environ,
            flags=flags,
        )
    except SettingError as error:
        raise click.UsageError(str(error)) from None
