"""The wire format of each Mooncake release, as tables. To add a release, write only the differences."""

from __future__ import annotations

from typing import Final

from leasehold.base.errors import InvalidArgument
from leasehold.wire.tables.release import Function, Release
from leasehold.wire.tables.v0_3_11 import V0_3_11
from leasehold.wire.tables.v0_3_12 import V0_3_12
from leasehold.wire.tables.v0_3_13 import V0_3_13

RELEASES: Final = {release.name: release for release in (V0_3_11, V0_3_12, V0_3_13)}
NEWEST: Final = V0_3_13

__all__ = ["NEWEST", "RELEASES", "V0_3_11", "V0_3_12", "V0_3_13", "Function", "Release", "find_release", "releases_of"]


def find_release(name: str) -> Release:
    """The table for `0.3.13`, `0.3.13.post1`, ...: a post-release speaks like its release."""
    release = RELEASES.get(".".join(name.split(".")[:3]))
    if release is None:
        raise InvalidArgument(f"no table for Mooncake {name}; there are: {', '.join(RELEASES)}")
    return release


def releases_of(function: int, request_hash: int) -> list[str]:
    """Which releases send this hash to this function: names the version of a client that is out of step."""
    return [
        release.name
        for release in RELEASES.values()
        if (known := release.by_id.get(function)) is not None and known.request_hash == request_hash
    ]
