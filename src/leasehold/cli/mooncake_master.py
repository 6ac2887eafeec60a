"""`leasehold mooncake-master`: `leasehold node` with the command line of `mooncake_master`."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

import leasehold
from leasehold.base.settings import specs
from leasehold.base.units import format_duration_ms
from leasehold.cli.help import Explained
from leasehold.cli.mooncake_flags import (
    LOGGING_FLAGS,
    CommandLine,
    FlagError,
    Value,
    duration_ms,
    parse,
    parse_config,
)
from leasehold.cli.node import SECTIONS, node

_SIOCGIFADDR: Final = 0x8915
_PORT: Final = 50051
_METRICS_PORT: Final = 9003
_METADATA_PORT: Final = 8080
_CLUSTER_ID: Final = "mooncake_cluster"

# Flag -> the setting with the same meaning, and how its value is written there.
_SECONDS: Final = {
    "client_ttl": "client_ttl",
    "put_start_discard_timeout_sec": "put_discard",
    "put_start_release_timeout_sec": "put_release",
}
_MILLISECONDS: Final = {
    "default_kv_lease_ttl": "lease_ttl",
    "default_kv_soft_pin_ttl": "soft_pin_ttl",
    "max_kv_soft_pin_ttl": "soft_pin_ttl_max",
}
_SAME: Final = {
    "cluster_id": "cluster",
    "allow_evict_soft_pinned_objects": "allow_evict_soft_pinned",
    "eviction_high_watermark_ratio": "eviction_high_watermark",
    "eviction_ratio": "eviction_ratio",
    "pod_name": "name",
    "offloading_queue_limit": "offload_queue_max",
    "promotion_admission_threshold": "promotion_threshold",
    "promotion_queue_limit": "promotion_queue_max",
    "promotion_max_per_heartbeat": "promotions_per_heartbeat",
    "enable_disk_eviction": "disk_eviction",
}
# Read by `_addresses`, `_store`, `_placement` and `_shared_folder`.
_TRANSLATED: Final = (
    "rpc_address", "rpc_port", "rpc_interface", "port", "metrics_host", "metrics_port", "enable_http_metadata_server",
    "http_metadata_server_host", "http_metadata_server_port", "enable_ha", "ha_backend_type", "etcd_endpoints",
    "ha_backend_connstring", "allocation_strategy", "config_path", "root_fs_dir", "quota_bytes",
)  # fmt: skip
# Always so here.
_ALWAYS: Final = {
    "enable_oplog": "every change is in the journal",
    "enable_snapshot": "snapshots are written when the journal has grown",
    "enable_snapshot_restore": "a node restores its state from a snapshot and the journal",
    "enable_metric_reporting": "metrics are on the admin port",
    "enable_metadata_cleanup_on_timeout": "metadata of dead processes is always deleted",
    "enable_multi_tenants": "each tenant has its own keys",
    "rpc_enable_tcp_no_delay": "it is always set",
}

Warn = Callable[[str], None]


def translate(line: CommandLine, warn: Warn) -> list[str]:
    """The arguments of `leasehold node` for a command line of `mooncake_master`."""
    values = dict(line.values)
    if "pod_name" not in values and (pod := os.environ.get("POD_NAME")):
        values["pod_name"] = pod
    _check(values)
    arguments: list[str] = []
    found = (
        *_addresses(values), *_store(values), *_placement(values, warn), *_shared_folder(values), *_plain(values, warn)
    )  # fmt: skip
    for setting, value in found:
        arguments += [f"--{setting.replace('_', '-')}", value]
    return [*arguments, *line.own]


def _check(values: Mapping[str, Value]) -> None:
    """Combinations that the C++ master refuses, too."""
    for name, text in (("eviction_ratio", "Mem eviction ratio"), ("eviction_high_watermark_ratio", "High watermark")):
        ratio = values.get(name, 0.5)
        if not 0.0 <= float(ratio) <= 1.0:
            raise FlagError(f"{text} must be between 0.0 and 1.0: --{name}={ratio}")
    if values.get("memory_allocator", "offset") not in ("cachelib", "offset"):
        allocator = values["memory_allocator"]
        raise FlagError(f"Invalid memory allocator: '{allocator}', must be 'cachelib' or 'offset'")
    if values.get("enable_oplog") and not values.get("enable_ha"):
        raise FlagError("enable_oplog requires enable_ha=true")


def _addresses(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    host = str(values.get("rpc_address", "0.0.0.0"))
    if interface := values.get("rpc_interface"):
        host = _interface_address(str(interface))
    port = values.get("rpc_port") or values.get("port", _PORT)
    yield "rpc", _joined(host, port)
    if values.get("enable_ha"):
        yield "forward", _joined(host, 0)
    yield "admin", _joined(values.get("metrics_host", "0.0.0.0"), values.get("metrics_port", _METRICS_PORT))
    if values.get("enable_http_metadata_server"):
        metadata_host = values.get("http_metadata_server_host", "0.0.0.0")
        yield "metadata_server", _joined(metadata_host, values.get("http_metadata_server_port", _METADATA_PORT))


def _joined(host: Value, port: Value) -> str:
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def _interface_address(name: str) -> str:
    """The IPv4 address of a network interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise FlagError(f"--rpc_interface={name}: it has no IPv4 address: {error.strerror}") from None
    return socket.inet_ntoa(answer[20:24])


def _store(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """High availability is a shared store: without it, everything is in memory, as in the C++ master."""
    if not values.get("enable_ha"):
        return
    backend = values.get("ha_backend_type", "etcd")
    if backend != "etcd":
        raise FlagError(f"--ha_backend_type={backend}: only etcd is offered: run an etcd, or `leasehold store`")
    endpoints = str(values.get("ha_backend_connstring") or values.get("etcd_endpoints", ""))
    if not endpoints:
        raise FlagError(
            "HA backend connection string must be set when enable_ha is true: add --etcd_endpoints=HOST:2379"
        )
    found = [each.strip() for each in endpoints.replace(",", ";").split(";") if each.strip()]
    scheme = "etcds" if any(each.startswith(("https://", "etcds://")) for each in found) else "etcd"
    yield "coord", f"{scheme}://{','.join(each.partition('://')[2] or each for each in found)}"


def _placement(values: Mapping[str, Value], warn: Warn) -> Iterator[tuple[str, str]]:
    strategy = str(values.get("allocation_strategy", ""))
    choices = {name: spec for model in SECTIONS.values() for name, (_, spec) in specs(model).items()}[
        "allocation"
    ].choices
    if strategy and strategy.replace("_", "-") in choices:
        yield "allocation", strategy.replace("_", "-")
    elif strategy:
        warn(f"--allocation_strategy={strategy} is not offered: the default is used ({', '.join(choices)})")


def _shared_folder(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """The folder for files is that of the cluster, below the given one."""
    if root := values.get("root_fs_dir"):
        yield "shared_dir", f"{root}/{values.get('cluster_id', _CLUSTER_ID)}"
    if "quota_bytes" in values:
        yield "disk_quota", f"{values['quota_bytes']}B"


def _plain(values: Mapping[str, Value], warn: Warn) -> Iterator[tuple[str, str]]:
    """Flags whose value is passed on."""
    settings = {name: spec for model in SECTIONS.values() for name, (_, spec) in specs(model).items()}
    for name, value in values.items():
        if name in _MILLISECONDS:
            yield _MILLISECONDS[name], _within(settings[_MILLISECONDS[name]], duration_ms(name, str(value)), name, warn)
        elif name in _SECONDS:
            yield _SECONDS[name], _within(settings[_SECONDS[name]], int(value) * 1_000, name, warn)
        elif name in _SAME:
            yield _SAME[name], _shown(value)
        elif name in _ALWAYS:
            if not value:
                warn(f"--{name}=false has no effect: {_ALWAYS[name]}")
        elif name in settings:  # a setting of the same name
            yield name, f"{value}B" if settings[name].unit == "size" else _shown(value)
        elif name not in _TRANSLATED and name not in LOGGING_FLAGS:
            warn(f"--{name} has no meaning here and is ignored")


def _within(spec: Any, value_ms: int, name: str, warn: Warn) -> str:
    """A duration, moved into the bounds of its setting."""
    moved_ms = max(spec.low or 0, min(value_ms, spec.high if spec.high is not None else value_ms))
    if moved_ms != value_ms:
        warn(f"--{name}={format_duration_ms(value_ms)} is out of bounds here: {format_duration_ms(moved_ms)} is used")
    return format_duration_ms(moved_ms)


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_command_line(arguments: list[str], warn: Warn) -> CommandLine:
    """Parse the command line and its config file; flags override the file."""
    line = parse(arguments, _read)
    path = str(line.values.get("config_path", ""))
    if not path:
        return line
    values, unknown = parse_config(path, _read(path), _load_yaml)
    for key in unknown:
        warn(f"'{key}' in '{path}' is not a flag and is ignored")
    return CommandLine({**values, **line.values}, line.own, line.wants_version)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FlagError(f"'{path}' cannot be read: {error}") from None


def _load_yaml(content: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise FlagError(
            "a YAML config file needs PyYAML: pip install 'leasehold[mooncake-master]', or use a .json file"
        ) from None
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise FlagError(f"the config file is not valid YAML: {error}") from None


class _Verbatim(Explained):
    """Its arguments are not click's: `-rpc_port 1` would be eight short options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        if any(each.lstrip("-") in ("h", "help", "helpfull", "helpshort") and each.startswith("-") for each in own):
            return super().parse_args(ctx, ["--help"])
        ctx.params["flags"] = tuple(args)
        return []


def _warn(sentence: str) -> None:
    click.echo(f"leasehold: warning: {sentence}", err=True)


@click.command(
    "mooncake-master",
    cls=_Verbatim,
    examples=(
        ("leasehold mooncake-master --rpc_port=50051", "a single master, in memory only"),
        (
            "leasehold mooncake-master --enable_ha=true --etcd_endpoints='h1:2379;h2:2379' --rpc_address=h4",
            "one of several masters of a cluster",
        ),
        (
            "leasehold mooncake-master --config_path=/etc/mooncake.yaml -- --data-dir /var/lib/leasehold",
            "its config file, and settings of `leasehold node` after --",
        ),
    ),
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def mooncake_master(ctx: click.Context, flags: tuple[str, ...]) -> None:
    """Run one node with the command line of `mooncake_master`, so that a launch script changes one word.

    Flags are read as `mooncake_master` 0.3.13 reads them (--flag=value, --flag value, --noflag, --flagfile). Flags
    without a meaning here are accepted with a warning; unknown flags and wrong values are errors. Arguments after --
    are settings of `leasehold node`; the environment variables of `leasehold node` apply too.
    """
    try:
        line = read_command_line(list(flags), _warn)
        if line.wants_version:
            click.echo(f"leasehold {leasehold.__version__}")
            return
        arguments = translate(line, _warn)
    except FlagError as error:
        click.echo(str(error), err=True)
        ctx.exit(1)
    node.main(arguments, prog_name="leasehold mooncake-master", standalone_mode=False)


def main() -> None:
    """The command `mooncake_master` of the companion package."""
    sys.argv[1:1] = ["mooncake-master"]
    from leasehold.cli.entry import main as run

    run()
