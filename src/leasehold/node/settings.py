"""Settings of one node: its name, addresses, coordination store and directories."""

from __future__ import annotations

from dataclasses import dataclass, field

from leasehold.base.errors import SettingError
from leasehold.base.security import SecuritySettings, TlsSettings
from leasehold.base.settings import choice, duration, flag, text, texts, url
from leasehold.events.settings import EventSettings
from leasehold.ha.guardian import GuardianSettings
from leasehold.ha.settings import HaSettings
from leasehold.index.settings import IndexSettings
from leasehold.wire.settings import WireSettings

EVERYWHERE = ("", "0.0.0.0", "::")  # wildcard hosts: valid to listen on, useless to connect to


@dataclass(frozen=True)
class NodeSettings:
    """Section `[node]`."""

    name: str = text("", help="name of this node, unique within the cluster (default: the host name)")
    cluster: str = text("mooncake_cluster", help="name of the cluster, as configured in Mooncake's clients")
    coord: str = url(
        "memory://", help="coordination store: etcd://HOST:PORT,... | etcds://... | embedded:///DIR | memory://"
    )
    coord_compact_ms: int = duration(
        "0ms", high="30d",
        help="age of store history that the primary compacts, for all users of that etcd; 0ms: never",
    )  # fmt: skip
    prefix: str = text("/leasehold", help="key prefix in the coordination store")
    rpc: str = text("127.0.0.1:50051", help="HOST:PORT where clients connect")
    rpc_tls: str = text("", help="HOST:PORT where Leasehold's own clients connect with TLS; empty: none")
    rpc_compat: tuple[str, ...] = texts(
        help="RELEASE=HOST:PORT,cluster=NAME of a second port for clients of an older Mooncake release"
    )
    advertise: str = text(
        "", help="HOST:PORT published to clients, if it differs from `rpc`; its HOST is published for other ports too"
    )
    admin: str = text("127.0.0.1:8700", help="HOST:PORT of the HTTP admin interface: probes, metrics, operators")
    forward: str = text("127.0.0.1:0", help="HOST:PORT where other nodes' guardians forward connections to this worker")
    data_dir: str = text("leasehold-data/node", help="directory for snapshots and the disk buffer")
    buffer: str = url(
        "disk", help="buffer for durability = buffered: disk, or redis://HOST:PORT (also Valkey, DragonflyDB)"
    )
    metadata_server: str = text("", help="HOST:PORT of a metadata server for Mooncake's transfer engine; empty: none")
    log: str = choice("auto", "auto", "text", "json", help="format of the log; auto: text on a terminal, else json")
    log_level: str = choice("info", "debug", "info", "warning", "error", help="level from which lines are logged")
    uvloop: bool = flag(True, help="whether the worker runs on uvloop")


@dataclass(frozen=True)
class NodeConfig:
    """All sections of one node, resolved; the guardian passes it to the worker as one document."""

    node: NodeSettings = field(default_factory=NodeSettings)
    index: IndexSettings = field(default_factory=IndexSettings)
    ha: HaSettings = field(default_factory=HaSettings)
    guardian: GuardianSettings = field(default_factory=GuardianSettings)
    wire: WireSettings = field(default_factory=WireSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    events: EventSettings = field(default_factory=EventSettings)


def split_address(address: str, setting: str) -> tuple[str, int]:
    """`127.0.0.1:50051` -> `("127.0.0.1", 50051)`; the error names `setting`."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise SettingError(f"{setting} = {address!r} is not HOST:PORT; write for example 127.0.0.1:50051")
    return host.strip("[]"), int(port)


def published_address(address: str, advertise: str) -> str:
    """The address of a listener that peers can connect to: its own, with the advertised host instead of a wildcard."""
    host, port = split_address(address, "advertise")
    if host not in EVERYWHERE or not advertise:
        return address
    public = split_address(advertise, "advertise")[0]
    return f"[{public}]:{port}" if ":" in public else f"{public}:{port}"


@dataclass(frozen=True)
class CompatPort:
    """One `rpc_compat` entry."""

    release: str
    address: str
    cluster: str


def parse_compat(entries: tuple[str, ...], own_cluster: str) -> list[CompatPort]:
    """Parse `0.3.12=HOST:PORT,cluster=NAME`. Commas also separate entries, so `cluster=` belongs to the one before."""
    ports: list[CompatPort] = []
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals:
            raise SettingError(f"rpc_compat: {entry!r} is not RELEASE=HOST:PORT,cluster=NAME")
        if name == "cluster":
            if not ports:
                raise SettingError("rpc_compat: cluster=NAME must follow its RELEASE=HOST:PORT")
            ports[-1] = CompatPort(ports[-1].release, ports[-1].address, value)
        else:
            split_address(value, "rpc_compat")
            ports.append(CompatPort(name, value, f"{own_cluster}_{name}"))
    return ports
