"""Old names of settings, metrics and commands, which still work for one release and print a warning.

A setting keeps its old name in the file, in the environment and as a flag. A metric is exported under both names.
`JSON_NAMES` is different: these names are read by nodes and programs of other releases, so they do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# section -> {old name: new name}
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "node": {"door": "forward"},
    "ha": {
        "margin": "leader_margin",
        "beat": "flush_interval",
        "urgent": "urgent_flush_interval",
        "bulk_ttl_s": "unlogged_ttl_s",
        "pin": "snapshot_pin",
    },
    "guardian": {"beat_timeout": "heartbeat_timeout", "held_max": "held_connections_max"},
}

# old name -> new name
METRICS: Final[Mapping[str, str]] = {
    "leasehold_set_aside_records": "leasehold_quarantined_records",
    "leasehold_buffer_aside_batches": "leasehold_buffer_quarantined_batches",
    "leasehold_limbo_extents": "leasehold_quarantined_extents",
}

# old name -> new name, as typed after `leasehold`
COMMANDS: Final[Mapping[str, str]] = {"journal aside": "journal quarantined"}

# old flag of `leasehold journal show`, now `--unlogged`
UNLOGGED_FLAG: Final = "bulk"

# attribute -> its name in the JSON of `/api/status`, `/api/cluster` and `leasehold status --json`
JSON_NAMES: Final[Mapping[str, str]] = {
    "quarantined_records": "set_aside",
    "quarantined_extents": "limbo_extents",
    "buffer_quarantined_batches": "buffer_aside_batches",
    "truncated_n": "floor_n",
}


def warning(old: str, new: str) -> str:
    """The line for an operator who uses an old name."""
    return f"{old} was renamed to {new}: change it before the next release, which no longer accepts the old name"
