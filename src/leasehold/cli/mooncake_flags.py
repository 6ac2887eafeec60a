"""The command line of `mooncake_master`: its flags, as gflags reads them. Pure.

The names and types are those of release 0.3.13, recorded from its `--help`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from msgspec import Struct

from leasehold.base.errors import SettingError

_TYPES: Final = {
    "string": """
        allocation_strategy cluster_id config_path cxl_path default_kv_lease_ttl default_kv_soft_pin_ttl
        dynamic_replication_mode etcd_endpoints ha_backend_connstring ha_backend_type http_metadata_server_host
        kv_events_additional_salt kv_events_backend_id kv_events_bind_endpoint kv_events_lora_name
        kv_events_model_name kv_events_tenant_id max_kv_soft_pin_ttl memory_allocator metrics_host pod_name
        pod_namespace root_fs_dir rpc_address rpc_interface snapshot_backup_dir
        snapshot_catalog_backend_connstring snapshot_catalog_backend_type snapshot_catalog_store_connstring
        snapshot_catalog_store_type snapshot_object_store_type snapshot_payload_backend_type
        snapshot_payload_store_type tenant_quota_connector_type tenant_quota_connector_uri
    """,
    "bool": """
        allow_evict_soft_pinned_objects enable_cxl enable_disk_eviction enable_ha enable_http_metadata_server
        enable_kv_events enable_metadata_cleanup_on_timeout enable_metric_reporting enable_multi_tenants
        enable_offload enable_oplog enable_snapshot enable_snapshot_restore kv_events_emit_legacy_compat
        kv_events_emit_object_key offload_force_evict offload_on_evict promotion_on_hit rpc_enable_tcp_no_delay
        use_mmap_arena_allocator
    """,
    "int32": """
        http_metadata_server_port max_threads metrics_port oplog_poll_interval_ms port rpc_conn_timeout_seconds
        rpc_port rpc_thread_num
    """,
    "int64": """
        client_ttl global_file_segment_size nof_heartbeat_interval_sec
    """,
    "uint32": """
        batch_oplog_retry_timeout_sec dynamic_replication_heat_window_seconds kv_events_block_size
        kv_events_dp_rank kv_events_queue_capacity max_retry_attempts max_total_finished_tasks
        max_total_pending_tasks max_total_processing_tasks nof_heartbeat_failures_threshold
        nof_heartbeat_probe_timeout_ms oplog_batch_max_entries promotion_admission_threshold
        promotion_max_per_heartbeat promotion_queue_limit snapshot_retention_count
    """,
    "uint64": """
        cxl_size dynamic_replication_max_memory_replicas offloading_queue_limit pending_task_timeout_sec
        processing_task_timeout_sec put_start_discard_timeout_sec put_start_release_timeout_sec quota_bytes
        snapshot_child_timeout_seconds snapshot_interval_seconds mmap_arena_pool_size
    """,
    "double": """
        dynamic_replication_admission_qps_threshold eviction_high_watermark_ratio eviction_ratio
        nof_eviction_high_watermark_ratio nof_eviction_ratio offload_cap_ratio
    """,
}
# Of the logging library that the C++ master uses: accepted, and without effect.
_LOGGING: Final = {
    "string": """
        alsologtoemail log_backtrace_at log_dir log_link logmailer vmodule
    """,
    "bool": """
        alsologtostderr colorlogtostderr drop_log_memory log_prefix logtostderr stop_logging_if_full_disk
        symbolize_stacktrace
    """,
    "int32": """
        logbuflevel logbufsecs logemaillevel logfile_mode max_log_size minloglevel stderrthreshold v
    """,
}
LOGGING_FLAGS: Final = frozenset(name for names in _LOGGING.values() for name in names.split())
FLAG_TYPES: Final = {
    name: kind for table in (_TYPES, _LOGGING) for kind, names in table.items() for name in names.split()
}
DURATIONS: Final = ("default_kv_lease_ttl", "default_kv_soft_pin_ttl", "max_kv_soft_pin_ttl")

_TRUE: Final = ("1", "t", "true", "y", "yes")
_FALSE: Final = ("0", "f", "false", "n", "no")
_BITS: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)} | {
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h)?")
_UNIT_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_FLAG_FILE_DEPTH_MAX: Final = 8

Value = str | bool | int | float


class FlagError(SettingError):
    """A flag that `mooncake_master` refuses too, in its words."""


class CommandLine(Struct, frozen=True):
    """The flags that were given, and the arguments after `--`, which are for `leasehold node`."""

    values: dict[str, Value]
    own: tuple[str, ...]
    wants_version: bool = False


def parse(arguments: Sequence[str], read: Callable[[str], str]) -> CommandLine:
    """Parse a command line. `read` returns the contents of a file, for `--flagfile`."""
    parser = _Parser(read)
    own: tuple[str, ...] = ()
    if "--" in arguments:
        at = list(arguments).index("--")
        arguments, own = arguments[:at], tuple(arguments[at + 1 :])
    parser.take(arguments, 0)
    return CommandLine(parser.values, own, parser.wants_version)


class _Parser:
    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        self.values: dict[str, Value] = {}
        self.wants_version = False

    def take(self, arguments: Sequence[str], depth: int) -> None:
        ignored = {
            name
            for argument in arguments
            if argument.lstrip("-").startswith("undefok=")
            for name in argument.partition("=")[2].split(",")
        }
        rest = iter(arguments)
        for argument in rest:
            if not argument.startswith("-") or argument == "-":
                continue  # as gflags does: an argument that is not a flag has no meaning
            name, equals, text = argument.lstrip("-").partition("=")
            if name in ("undefok", "tab_completion_word", "tab_completion_columns"):
                continue
            if name in ("flagfile", "fromenv", "tryfromenv"):
                self._from_elsewhere(name, text if equals else next(rest, ""), depth)
            elif name == "version":
                self.wants_version = True
            else:
                self._flag(name, text if equals else None, rest, ignored)

    def _from_elsewhere(self, name: str, value: str, depth: int) -> None:
        if name != "flagfile":
            raise FlagError(
                f"ERROR: flag '--{name}' is not offered: write the flags on the command line or in a flagfile"
            )
        if depth >= _FLAG_FILE_DEPTH_MAX:
            raise FlagError(f"ERROR: '{value}': flagfiles name each other in a circle")
        for path in filter(None, value.split(",")):
            lines = (line.strip() for line in self._read(path).splitlines())
            self.take([line for line in lines if line.startswith("-")], depth + 1)

    def _flag(self, name: str, text: str | None, rest: Any, ignored: set[str]) -> None:
        if name not in FLAG_TYPES and FLAG_TYPES.get(name.removeprefix("no")) == "bool" and text is None:
            self.values[name.removeprefix("no")] = False
            return
        if name not in FLAG_TYPES:
            if name in ignored:
                return
            raise FlagError(f"ERROR: unknown command line flag '{name}'")
        kind = FLAG_TYPES[name]
        if text is None:
            text = "true" if kind == "bool" else next(rest, None)
        if text is None:
            raise FlagError(f"ERROR: flag '--{name}' is missing its argument")
        self.values[name] = convert(name, text)


def convert(name: str, text: str) -> Value:
    """The value of a flag, of its type."""
    kind = FLAG_TYPES[name]

    def illegal() -> NoReturn:
        raise FlagError(f"ERROR: illegal value '{text}' specified for {kind} flag '{name}'")

    if kind == "bool":
        if text.lower() not in (*_TRUE, *_FALSE):
            illegal()
        return text.lower() in _TRUE
    if kind == "string":
        if name in DURATIONS:
            duration_ms(name, text)
        return text
    try:
        if kind == "double":
            number = float(text)
            return number if math.isfinite(number) else illegal()
        whole = int(text, 16 if text.lower().startswith(("0x", "-0x")) else 10)
    except ValueError:
        illegal()
    low, high = _BITS[kind]
    return whole if low <= whole <= high else illegal()


def duration_ms(name: str, text: str) -> int:
    """A duration of the C++ master: milliseconds, or a number with ms, s, m or h."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise FlagError(
            f"ERROR: failed validation of new value '{text}' for flag '{name}': a duration is a non-negative number "
            "of milliseconds, or has the unit ms, s, m or h"
        )
    return int(found[1]) * _UNIT_MS[found[2] or ""]


def parse_config(path: str, content: str, load_yaml: Callable[[str], Any]) -> tuple[dict[str, Value], list[str]]:
    """The values of a `--config_path` file, and the keys that no flag has. The format follows from its suffix."""
    if path.endswith(".json"):
        try:
            document = json.loads(content)
        except ValueError as error:
            raise FlagError(f"'{path}' is not valid JSON: {error}") from None
    elif path.endswith((".yaml", ".yml")):
        document = load_yaml(content)
    else:
        raise FlagError(f"'{path}': unsupported config file format: its name must end with .json, .yaml or .yml")
    values: dict[str, Value] = {}
    unknown: list[str] = []
    for key, value in _flat(path, document or {}, "").items():
        name = "client_ttl" if key == "client_live_ttl_sec" else key
        if name not in FLAG_TYPES:
            unknown.append(key)
        else:
            values[name] = convert(name, str(value).lower() if isinstance(value, bool) else str(value))
    return values, unknown


def _flat(path: str, document: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise FlagError(f"'{path}': '{prefix or 'the document'}' must be a table of names and values")
    found: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping | list):
            found |= _flat(path, value, name)
        else:
            found[name] = value
    return found
