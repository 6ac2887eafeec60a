"""The facts that a node finds out about itself and its surroundings, for `leasehold doctor` and `leasehold config`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

# Sections in which a difference between nodes changes what clients rely on after a failover.
SHARED_SECTIONS: Final = ("index", "ha", "guardian", "wire")
SHARED_SETTINGS: Final = ("node.cluster", "node.prefix")


class ClockReading(Struct, frozen=True):
    """The clocks of a node at one moment."""

    name: str
    boot_us: int  # the clock of all durations
    wall_us: int


class ShownSetting(Struct, frozen=True):
    """One setting of a running node, as a settings file has it; passwords are masked."""

    name: str  # section.key
    value: str
    default: str
    changeable: bool = False  # while the node runs

    @property
    def is_default(self) -> bool:
        return self.value == self.default

    @property
    def is_shared(self) -> bool:
        """Whether all nodes should have the same value."""
        return self.name.partition(".")[0] in SHARED_SECTIONS or self.name in SHARED_SETTINGS


class ShownConfig(Struct, frozen=True):
    """All settings of a running node."""

    node: str
    settings: tuple[ShownSetting, ...]

    def shared(self) -> dict[str, str]:
        return {each.name: each.value for each in self.settings if each.is_shared}


class StoreCheckup(Struct, frozen=True):
    """The coordination store, as a node reaches it."""

    problem: str = ""  # why it does not answer
    read_ms: tuple[int, ...] = ()  # duration of linearizable reads, one after the other
    version: str = ""
    database_bytes: int = 0
    alarms: tuple[str, ...] = ()
    certificate_ends_s: dict[str, int] = {}  # Unix time, by endpoint


class DiskCheckup(Struct, frozen=True):
    """The disk of the data directory."""

    folder: str
    problem: str = ""  # why nothing can be written there
    free_bytes: int = 0
    total_bytes: int = 0
    write_ms: tuple[int, ...] = ()  # duration of small durable writes, one after the other


class HostCheckup(Struct, frozen=True):
    """A storage host, as the primary reaches it."""

    name: str
    endpoint: str
    problem: str = ""  # why a client could not transfer bytes
    certificate_end_s: int = 0  # Unix time; 0: it uses no TLS


class NodeCheckup(Struct, frozen=True, kw_only=True):
    """Everything that one node finds out."""

    name: str
    store: StoreCheckup
    disk: DiskCheckup
    files_open: int
    files_max: int
    files_needed: int  # by the limits of connections in the settings
    drift: float  # the setting: largest difference in the rate of two clocks
    store_timeout_ms: int
    commit_p99_ms: int  # of the journal batches in the last hour; 0: none
    risky: tuple[str, ...] = ()  # rules about lease times that do not hold
    hosts: tuple[HostCheckup, ...] = ()  # of the primary
    hosts_not_probed: int = 0


class CheckupFace(Protocol):
    """The part of a running node for these routes."""

    def clock(self) -> ClockReading: ...

    def config(self) -> ShownConfig: ...

    async def checkup(self) -> NodeCheckup: ...


def different_settings(values: Mapping[str, Mapping[str, str]]) -> list[tuple[str, dict[str, str]]]:
    """Settings that do not have one value on all nodes: name, and the value of each node. `values` is by node."""
    names: Iterable[str] = dict.fromkeys(name for settings in values.values() for name in settings)
    found = []
    for name in names:
        by_node = {node: settings[name] for node, settings in sorted(values.items()) if name in settings}
        if len(set(by_node.values())) > 1:
            found.append((name, by_node))
    return found
