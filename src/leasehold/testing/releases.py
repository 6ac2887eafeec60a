"""Compare the RPC of a Mooncake wheel with our tables: which functions, types and hashes differ.

The master of a wheel contains the names of its functions as text, and the hash of every request and response type as a
constant. So a table can be checked without running anything: its names must be there, and its hashes too. A constant of
four bytes is in five million by chance with a probability of one in a thousand.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from leasehold.base.errors import InvalidArgument
from leasehold.wire.body import type_hash
from leasehold.wire.schema import Type
from leasehold.wire.tables import NEWEST, RELEASES, Release

_NAME: Final = re.compile(rb"Func = &mooncake::WrappedMasterService::(\w+)\]")
_MASTER: Final = "mooncake/mooncake_master"


class WheelFunction(Struct, frozen=True):
    """A function of a wheel, and the releases whose table has its request and its response type."""

    name: str
    request: tuple[str, ...]
    response: tuple[str, ...]

    @property
    def unknown(self) -> bool:
        """Whether no table has its form."""
        return not set(self.request) & set(self.response)


class WheelReport(Struct, frozen=True):
    """The functions of a wheel, against all tables."""

    wheel: str
    functions: tuple[WheelFunction, ...]

    def differences(self, release: Release) -> list[str]:
        """How the wheel differs from one table, in sentences; empty if the table is right."""
        here = {function.name: function for function in self.functions}
        found = [f"{name}: in the wheel, not in the table" for name in sorted(set(here) - set(release.functions))]
        found += [f"{name}: in the table, not in the wheel" for name in sorted(set(release.functions) - set(here))]
        for name in sorted(set(here) & set(release.functions)):
            if release.name not in here[name].request:
                found.append(f"{name}: the request has another type")
            if release.name not in here[name].response:
                found.append(f"{name}: the response has another type")
        return found

    def closest(self) -> Release:
        """The table with the fewest differences; of equal ones the newest."""
        return min(reversed(RELEASES.values()), key=lambda release: len(self.differences(release)))

    def table(self) -> list[str]:
        """The report as a Markdown table, for review. Functions that agree with the newest table are left out."""
        rows = [
            f"| {each.name} | {_releases(each.request)} | {_releases(each.response)} |"
            for each in self.functions
            if NEWEST.name not in each.request or NEWEST.name not in each.response
        ]
        return ["| function | request as in | response as in |", "|---|---|---|", *rows]


def _releases(names: Iterable[str]) -> str:
    return ", ".join(names) or "no table: **new**"


def read_wheel(path: Path) -> WheelReport:
    """Report on a wheel: a `.whl` file, or the folder of an environment in which it is installed."""
    return report_on(_master_of(path), str(path))


def report_on(master: bytes, wheel: str) -> WheelReport:
    """Report on the bytes of a master's executable."""
    names = sorted({found.decode() for found in _NAME.findall(master)})
    if not names:
        raise InvalidArgument(f"'{wheel}' has no functions of a Mooncake master")
    return WheelReport(
        wheel,
        tuple(
            WheelFunction(
                name,
                tuple(each.name for each in RELEASES.values() if _has(master, each, name, "request")),
                tuple(each.name for each in RELEASES.values() if _has(master, each, name, "returns")),
            )
            for name in names
        ),
    )


def _has(master: bytes, release: Release, name: str, part: str) -> bool:
    function = release.functions.get(name)
    if function is None:
        return False
    type_: Type | None = getattr(function, part)
    if type_ is None:  # no arguments: nothing is sent
        return True
    number = type_hash(type_.literal)
    return struct.pack("<I", number) in master or struct.pack("<I", number | 1) in master


def _master_of(path: Path) -> bytes:
    if path.is_dir():
        found = sorted(path.glob(f"lib/python*/site-packages/{_MASTER}"))
        if not found:
            raise InvalidArgument(f"'{path}' has no installed Mooncake: its mooncake_master is missing")
        return found[0].read_bytes()
    try:
        with zipfile.ZipFile(path) as wheel:
            return wheel.read(_MASTER)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidArgument(f"'{path}' is not a wheel of Mooncake: {error}") from None
