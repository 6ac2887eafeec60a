"""The settings model: a TOML file, then the environment, then flags; the later one wins. No I/O: callers pass texts.

A package declares its settings once, as a frozen dataclass:

    @dataclass(frozen=True)
    class NodeSettings:
        lease_ttl_ms: int = duration("10s", low="10ms", high="1h", help="time that a read protects an object")

That declaration gives the TOML key (`lease_ttl = "10s"` in the section `[node]`), the environment variable
(`LEASEHOLD_NODE_LEASE_TTL`), the flag (`--lease-ttl`), the help text and the bounds; every value remembers its origin.
An unknown key or a bad value is rejected with its name, file and line; so is a variable with a misspelt or missing
section (`check_environment`). Renamed settings are accepted under their old name with a warning (`base/renamed.py`).
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

from leasehold.base import renamed
from leasehold.base.errors import SettingError
from leasehold.base.text import without_password
from leasehold.base.units import (
    format_bytes,
    format_duration_ms,
    parse_bool,
    parse_bytes,
    parse_count,
    parse_duration_ms,
    parse_ratio,
)

T = TypeVar("T")
ENVIRONMENT_PREFIX = "LEASEHOLD"
_NEAR = 0.8  # similarity above which an unknown variable counts as a typo; below it, it may belong to another program
# Variables that Kubernetes (and Docker links) set for every service; one may be named `leasehold-node`.
_OF_A_SERVICE = re.compile(r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
# Upper bounds of settings without one: far beyond any use, and they still fit every integer type.
_DURATION_MAX, _SIZE_MAX, _COUNT_MAX = "365d", "1024TiB", 2**63 - 1


class Spec(Struct, frozen=True):
    """One setting: how to parse, print, describe and bound its value."""

    parse: Callable[[str], Any]
    show: Callable[[Any], str]
    unit: str
    help: str
    low: Any = None
    high: Any = None
    choices: tuple[str, ...] = ()
    strip: str = ""  # unit suffix that the public name omits: the field `lease_ttl_ms` is the setting `lease_ttl`
    many: bool = False
    open_ended: bool = False  # `high` only keeps the value within its type, so help and errors do not mention it

    def bounds(self) -> str:
        """`10ms to 1h`, or `at least 1s`; "" if every value is allowed."""
        if self.low is None or (self.open_ended and not self.low):
            return ""
        return (
            f"at least {self.show(self.low)}" if self.open_ended else f"{self.show(self.low)} to {self.show(self.high)}"
        )


def _field(default: Any, spec: Spec) -> Any:
    return dataclasses.field(default=default, metadata={"setting": spec})


def duration(default: str, *, low: str = "0ms", high: str = "", help: str) -> Any:
    """A duration in milliseconds; the field's name ends in `_ms`."""
    bounds = parse_duration_ms(low), parse_duration_ms(high or _DURATION_MAX)
    spec = Spec(parse_duration_ms, format_duration_ms, "duration", help, *bounds, strip="_ms", open_ended=not high)
    return _field(parse_duration_ms(default), spec)


def size(default: str, *, low: str = "0", high: str = "", help: str) -> Any:
    """A size in bytes; the field's name ends in `_bytes`."""
    bounds = parse_bytes(low), parse_bytes(high or _SIZE_MAX)
    spec = Spec(parse_bytes, format_bytes, "size", help, *bounds, strip="_bytes", open_ended=not high)
    return _field(parse_bytes(default), spec)


def count(default: int, *, low: int = 0, high: int | None = None, help: str) -> Any:
    """A whole number."""
    top = _COUNT_MAX if high is None else high
    return _field(default, Spec(parse_count, str, "number", help, low, top, open_ended=high is None))


def ratio(default: float, *, low: float = 0.0, high: float = 1.0, help: str) -> Any:
    """A fraction, such as 0.9."""
    return _field(default, Spec(parse_ratio, "{:g}".format, "ratio", help, low, high))


def flag(default: bool, *, help: str) -> Any:
    """True or false."""
    return _field(default, Spec(parse_bool, lambda v: "true" if v else "false", "true or false", help))


def text(default: str, *, help: str) -> Any:
    """Any text: an address, a name, a path."""
    return _field(default, Spec(str, str, "text", help))


def url(default: str, *, help: str) -> Any:
    """A text that may contain a password, which is not shown."""
    return _field(default, Spec(str, without_password, "text", help))


def choice(default: str, *options: str, help: str) -> Any:
    """One of the given words."""
    return _field(default, Spec(str, str, " | ".join(options), help, choices=options))


def texts(*default: str, help: str) -> Any:
    """A list of texts: a TOML array, or one text separated by commas."""
    spec = Spec(_split, ",".join, "text,text,...", help, many=True)
    return _field(default, spec)


def _split(joined: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in joined.split(",") if part.strip())


def specs(model: type[Any]) -> dict[str, tuple[str, Spec]]:
    """Public name -> (field name, spec), in declaration order."""
    found: dict[str, tuple[str, Spec]] = {}
    for item in dataclasses.fields(model):
        spec: Spec = item.metadata["setting"]
        found[item.name.removesuffix(spec.strip) if spec.strip else item.name] = (item.name, spec)
    return found


@dataclasses.dataclass(frozen=True)
class Resolved(Generic[T]):
    """The settings, the origin of each value by public name, and warnings about renamed settings."""

    values: T
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def table(self) -> list[tuple[str, str, str]]:
        """(name, formatted value, origin) for every setting."""
        return [
            (name, spec.show(getattr(self.values, field)), self.origins[name])
            for name, (field, spec) in specs(type(self.values)).items()
        ]


def resolve(
    model: type[T],
    section: str,
    *,
    toml: str = "",
    toml_name: str = "leasehold.toml",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str | None] | None = None,
) -> Resolved[T]:
    """Combine the settings of `section`. `flags` are keyed by public name; None means not given.

    Within one source the new name of a renamed setting wins over its old name.
    """
    known = specs(model)
    old_names = {old: new for old, new in renamed.SETTINGS.get(section, {}).items() if new in known}
    values: dict[str, Any] = {}
    origins = dict.fromkeys(known, "default")
    warnings: list[str] = []

    def take(name: str, raw: object, origin: str, spelling: Callable[[str], str]) -> None:
        current = old_names.get(name, name)
        if current not in known:
            raise SettingError(f"{origin}: unknown setting {name!r} in [{section}]; {_nearest(name, known)}")
        if current != name:
            old = origin if spelling(name) in origin else f"{origin}: {spelling(name)}"
            warnings.append(renamed.warning(old, spelling(current)))
        field, spec = known[current]
        values[field] = _checked(current, spec, raw, origin)
        origins[current] = origin

    def old_first(name: str) -> bool:
        return name not in old_names

    in_file = _from_toml(section, toml, toml_name)
    for name in sorted(in_file, key=old_first):
        take(name, in_file[name], f"{toml_name}:{_line_of(toml, section, name)}", repr)
    prefix = f"{ENVIRONMENT_PREFIX}_{section.upper()}_"
    variables = {name.removeprefix(prefix).lower(): name for name in environment or {} if name.startswith(prefix)}
    for name in sorted(variables, key=lambda name: (old_first(name), name)):
        if name in known or name in old_names or not _OF_A_SERVICE.fullmatch(name.upper()):
            variable = variables[name]
            take(name, (environment or {})[variable], f"environment variable {variable}", lambda n: prefix + n.upper())
    for name in sorted(flags or {}, key=old_first):
        given = (flags or {})[name]
        if given is not None:
            take(name, given, f"flag {_as_flag(name)}", _as_flag)
    return Resolved(model(**values), origins, tuple(warnings))


def _as_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def check_sections(toml: str, toml_name: str, known: Collection[str]) -> None:
    """Reject an unknown section, and a setting outside any section: a typo there would have no effect, silently."""
    for name, value in _parse(toml, toml_name).items():
        if isinstance(value, list) and name in known:
            line = _line_of_section(toml, name)
            raise SettingError(f"{toml_name}:{line}: [[{name}]] is a list of sections; write [{name}]")
        if not isinstance(value, dict):
            line = _line_of(toml, "", name)
            raise SettingError(f"{toml_name}:{line}: {name!r} is outside any section; move it below a [section] line")
        if name not in known:
            line = _line_of_section(toml, name)
            raise SettingError(f"{toml_name}:{line}: unknown section [{name}]; {_nearest(name, known)}")


def check_environment(
    environment: Collection[str], models: Mapping[str, type[Any]], sections: Collection[str], others: Collection[str]
) -> None:
    """Reject a variable that looks like one of these models' but names no section: it would have no effect, silently.

    It looks like one if only a typo apart, or if it is a two-word setting without its section. Other variables with
    our prefix may belong to another program and are ignored, as are those of other `sections` and the `others`.
    """
    prefix = f"{ENVIRONMENT_PREFIX}_"
    ours = {f"{section}_{name}".upper(): name.upper() for section, model in models.items() for name in specs(model)}
    for variable in sorted(environment):
        rest = variable.removeprefix(prefix)
        if rest == variable or variable in others or _OF_A_SERVICE.fullmatch(rest):
            continue
        if rest.startswith(tuple(f"{section.upper()}_" for section in sections)):
            continue
        near = [whole for whole, name in ours.items() if name == rest and "_" in name] or _like(rest, ours, _NEAR)
        if near:
            raise SettingError(f"environment variable {variable}: no such setting; did you mean {prefix}{near[0]}?")


def _line_of_section(toml: str, name: str) -> int:
    lines = (number for number, line in enumerate(toml.splitlines(), 1) if line.strip("[ \"'").startswith(name))
    return next(lines, 1)


def _parse(toml: str, toml_name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{toml_name}: not valid TOML: {error}") from None


def _from_toml(section: str, toml: str, toml_name: str) -> dict[str, object]:
    table = _parse(toml, toml_name).get(section, {})
    if not isinstance(table, dict):
        raise SettingError(f"{toml_name}: [{section}] must be a table of settings")
    return table


def _line_of(toml: str, section: str, name: str) -> int:
    """The line that sets `name` in `[section]`; the standard library's TOML parser does not report lines."""
    current = ""
    for number, line in enumerate(toml.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            current = stripped.partition("]")[0].strip("[ \"'")  # a comment may follow
            continue
        key = [part.strip().strip("\"'") for part in stripped.split("=")[0].split(".")]
        if (key == [name] and current == section) or (key == [section, name] and not current):
            return number
    return 1


def _checked(name: str, spec: Spec, raw: object, origin: str) -> Any:
    try:
        value = spec.parse(_as_text(spec, raw))
    except (ValueError, TypeError) as error:
        raise SettingError(f"{origin}: {name} = {raw!r}: {error}") from None
    if spec.choices and value not in spec.choices:
        raise SettingError(f"{origin}: {name} = {raw!r} is not a choice; use one of {', '.join(spec.choices)}")
    if spec.low is not None and not spec.low <= value <= spec.high:
        bounds = spec.bounds() or f"{spec.show(spec.low)} to {spec.show(spec.high)}"
        raise SettingError(f"{origin}: {name} = {raw!r} is out of bounds; use {bounds}")
    return value


def _as_text(spec: Spec, raw: object) -> str:
    if spec.parse is str and isinstance(raw, bool | int | float):
        raise TypeError('expected a text; write it in quotes, as in "5"')
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if spec.many and isinstance(raw, list):
        return ",".join(map(str, raw))
    if isinstance(raw, (str, int, float)):
        return str(raw)
    raise TypeError(f"expected {spec.unit}, not a {type(raw).__name__}")


def _nearest(name: str, known: Collection[str]) -> str:
    close = _like(name, known)
    return f"did you mean {close[0]!r}?" if close else f"known names: {', '.join(known)}"


def _like(name: str, known: Collection[str], cutoff: float = 0.6) -> list[str]:
    import difflib  # slow to import, and needed only for error messages

    return difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
