"""The settings of one node: where it is found, what it keeps its state with, what its clients may expect."""

from __future__ import annotations

from dataclasses import dataclass, field

from leasehold.base.errors import SettingError
from leasehold.base.settings import choice, duration, flag, text, texts
from leasehold.ha.guardian import GuardianSettings
from leasehold.ha.settings import HaSettings
from leasehold.index.settings import IndexSettings
from leasehold.wire.settings import WireSettings

EVERYWHERE = ("", "0.0.0.0", "::")  # hosts that say where to listen, and not where something is


@dataclass(frozen=True)
class NodeSettings:
    """`[node]`."""

    name: str = text("", help="this node's name, unlike any other node's of the cluster; by default the host's")
    cluster: str = text("mooncake_cluster", help="the cluster's name, as Mooncake's clients are told it")
    coord: str = text("memory://", help="etcd://HOST:PORT,... | etcds://... | embedded:///DIR | memory://")
    coord_compact_ms: int = duration(
        "0ms", high="30d",
        help="the primary compacts history of the store older than this; 0ms: never, it is for all users of that etcd",
    )  # fmt: skip
    prefix: str = text("/leasehold", help="where in the coordination store everything of ours stands")
    rpc: str = text("127.0.0.1:50051", help="HOST:PORT for clients")
    rpc_compat: tuple[str, ...] = texts(help="RELEASE=HOST:PORT,cluster=NAME: a second port for an older release")
    advertise: str = text(
        "", help="HOST:PORT that clients are told, if other than where it listens; its HOST is told for other ports too"
    )
    admin: str = text("127.0.0.1:8700", help="HOST:PORT for people and probes (HTTP)")
    door: str = text("127.0.0.1:0", help="HOST:PORT on which other nodes' guardians forward connections to this worker")
    data_dir: str = text("leasehold-data/node", help="the directory for snapshots and the disk buffer")
    buffer: str = text("disk", help="for durability = buffered: disk, or redis://HOST:PORT (Valkey, DragonflyDB too)")
    metadata_server: str = text("", help="HOST:PORT of a metadata server for Mooncake's transfer engine; off if empty")
    log: str = choice("text", "text", "json", help="the log's form")
    uvloop: bool = flag(True, help="run the worker on uvloop")


@dataclass(frozen=True)
class NodeConfig:
    """All sections that one node needs, as they were resolved; handed to the worker as one document."""

    node: NodeSettings = field(default_factory=NodeSettings)
    index: IndexSettings = field(default_factory=IndexSettings)
    ha: HaSettings = field(default_factory=HaSettings)
    guardian: GuardianSettings = field(default_factory=GuardianSettings)
    wire: WireSettings = field(default_factory=WireSettings)


def split_address(address: str, setting: str) -> tuple[str, int]:
    """`127.0.0.1:50051` -> its parts; says which setting is wrong."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise SettingError(f"{setting} = {address!r}: HOST:PORT is wanted, such as 127.0.0.1:50051")
    return host.strip("[]"), int(port)


def as_told(address: str, advertise: str) -> str:
    """What others are told of a listener: where it is, or, if it listens everywhere, the host that is advertised."""
    host, port = split_address(address, "advertise")
    if host not in EVERYWHERE or not advertise:
        return address
    told = split_address(advertise, "advertise")[0]
    return f"[{told}]:{port}" if ":" in told else f"{told}:{port}"


@dataclass(frozen=True)
class CompatPort:
    """One `rpc_compat` entry."""

    release: str
    address: str
    cluster: str


def parse_compat(entries: tuple[str, ...], own_cluster: str) -> list[CompatPort]:
    """`0.3.12=HOST:PORT,cluster=NAME` entries; commas also separate entries, so `cluster=` goes with the one before."""
    ports: list[CompatPort] = []
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals:
            raise SettingError(f"rpc_compat: {entry!r}: RELEASE=HOST:PORT,cluster=NAME is wanted")
        if name == "cluster":
            if not ports:
                raise SettingError("rpc_compat: cluster=NAME must follow its RELEASE=HOST:PORT")
            ports[-1] = CompatPort(ports[-1].release, ports[-1].address, value)
        else:
            split_address(value, "rpc_compat")
            ports.append(CompatPort(name, value, f"{own_cluster}_{name}"))
    return ports
