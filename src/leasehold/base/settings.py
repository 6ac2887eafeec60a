"""One settings model: a TOML file, then the environment, then flags; the later wins. Pure: texts come in.

A room declares its settings once, as a frozen dataclass:

    @dataclass(frozen=True)
    class NodeSettings:
        lease_ttl_ms: int = duration("10s", low="10ms", high="1h", help="how long a read protects an object")

From that follow the TOML key (`lease_ttl = "10s"` in the section `[node]`), the variable
(`LEASEHOLD_NODE_LEASE_TTL`), the flag (`--lease-ttl`), the help text, the bounds, and for every value where it
came from. Unknown keys and bad values are refused by name, file and line.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

from leasehold.base.errors import SettingError
from leasehold.base.units import (
    format_bytes,
    format_duration_ms,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
)

T = TypeVar("T")
ENVIRONMENT_PREFIX = "LEASEHOLD"


class Spec(Struct, frozen=True):
    """What is known of one setting besides its name."""

    parse: Callable[[str], Any]
    show: Callable[[Any], str]
    unit: str
    help: str
    low: Any = None
    high: Any = None
    choices: tuple[str, ...] = ()
    strip: str = ""  # the unit in the field's name that people need not write: `lease_ttl_ms` is `lease_ttl`
    many: bool = False


def _field(default: Any, spec: Spec) -> Any:
    return dataclasses.field(default=default, metadata={"setting": spec})


def duration(default: str, *, low: str = "0ms", high: str = "365d", help: str) -> Any:
    """A duration in milliseconds; the field's name ends in `_ms`."""
    bounds = parse_duration_ms(low), parse_duration_ms(high)
    spec = Spec(parse_duration_ms, format_duration_ms, "duration", help, *bounds, strip="_ms")
    return _field(parse_duration_ms(default), spec)


def size(default: str, *, low: str = "0", high: str = "1024TiB", help: str) -> Any:
    """A size in bytes; the field's name ends in `_bytes`."""
    spec = Spec(parse_bytes, format_bytes, "size", help, parse_bytes(low), parse_bytes(high), strip="_bytes")
    return _field(parse_bytes(default), spec)


def count(default: int, *, low: int = 0, high: int = 2**63 - 1, help: str) -> Any:
    return _field(default, Spec(int, str, "number", help, low, high))


def ratio(default: float, *, low: float = 0.0, high: float = 1.0, help: str) -> Any:
    return _field(default, Spec(float, "{:g}".format, "ratio", help, low, high))


def flag(default: bool, *, help: str) -> Any:
    return _field(default, Spec(parse_bool, lambda v: "true" if v else "false", "true or false", help))


def text(default: str, *, help: str) -> Any:
    return _field(default, Spec(str, str, "text", help))


def choice(default: str, *options: str, help: str) -> Any:
    return _field(default, Spec(str, str, " | ".join(options), help, choices=options))


def texts(*default: str, help: str) -> Any:
    """A list of texts: a TOML array, or one text with commas."""
    spec = Spec(_split, ",".join, "text,text,...", help, many=True)
    return _field(default, spec)


def _split(joined: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in joined.split(",") if part.strip())


def specs(model: type[Any]) -> dict[str, tuple[str, Spec]]:
    """Public name -> (field name, spec), in the order of declaration."""
    found: dict[str, tuple[str, Spec]] = {}
    for item in dataclasses.fields(model):
        spec: Spec = item.metadata["setting"]
        found[item.name.removesuffix(spec.strip) if spec.strip else item.name] = (item.name, spec)
    return found


@dataclasses.dataclass(frozen=True)
class Resolved(Generic[T]):
    """The settings, and for each (by public name) where its value came from."""

    values: T
    origins: Mapping[str, str]

    def table(self) -> list[tuple[str, str, str]]:
        """(name, value as people write it, origin) for every setting."""
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
    """Put the settings of `section` together; `flags` are by public name, None means not given."""
    known = specs(model)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(known, "default")

    def take(name: str, raw: object, origin: str) -> None:
        if name not in known:
            raise SettingError(f"{origin}: unknown setting {name!r} in [{section}]; {_nearest(name, known)}")
        field, spec = known[name]
        values[field] = _checked(name, spec, raw, origin)
        origins[name] = origin

    for name, raw in _from_toml(section, toml, toml_name).items():
        take(name, raw, f"{toml_name}:{_line_of(toml, section, name)}")
    for variable, raw in sorted((environment or {}).items()):
        prefix = f"{ENVIRONMENT_PREFIX}_{section.upper()}_"
        if variable.startswith(prefix):
            take(variable.removeprefix(prefix).lower(), raw, f"environment variable {variable}")
    for name, given in (flags or {}).items():
        if given is not None:
            take(name, given, f"flag --{name.replace('_', '-')}")
    return Resolved(model(**values), origins)


def _from_toml(section: str, toml: str, toml_name: str) -> dict[str, object]:
    try:
        document = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{toml_name}: not valid TOML: {error}") from None
    table = document.get(section, {})
    if not isinstance(table, dict):
        raise SettingError(f"{toml_name}: [{section}] must be a table of settings")
    return table


def _line_of(toml: str, section: str, name: str) -> int:
    """The line that sets `name` in `[section]`; the TOML parser of the standard library does not tell."""
    current = ""
    for number, line in enumerate(toml.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            current = stripped.strip("[] ")
        elif current == section and stripped.split("=")[0].strip().strip("\"'") == name:
            return number
    return 1


def _checked(name: str, spec: Spec, raw: object, origin: str) -> Any:
    try:
        value = spec.parse(_as_text(spec, raw))
    except (ValueError, TypeError) as error:
        raise SettingError(f"{origin}: {name} = {raw!r}: {error}; it takes {spec.unit}") from None
    if spec.choices and value not in spec.choices:
        raise SettingError(f"{origin}: {name} = {raw!r}: choose one of {', '.join(spec.choices)}")
    if spec.low is not None and not spec.low <= value <= spec.high:
        bounds = f"{spec.show(spec.low)} to {spec.show(spec.high)}"
        raise SettingError(f"{origin}: {name} = {raw!r} is out of bounds; it takes {bounds}")
    return value


def _as_text(spec: Spec, raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if spec.many and isinstance(raw, list):
        return ",".join(map(str, raw))
    if isinstance(raw, (str, int, float)):
        return str(raw)
    raise TypeError(f"a {type(raw).__name__} is not a value for it")


def _nearest(name: str, known: Mapping[str, object]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(known)}"
