"""`leasehold node`: run one node."""

from __future__ import annotations

from typing import Any

import click

from leasehold.base.security import SecuritySettings, TlsSettings
from leasehold.cli.entry import exit_on_signals
from leasehold.cli.help import Explained
from leasehold.cli.settings import resolve_options, sections_options
from leasehold.events.settings import EventSettings
from leasehold.ha.guardian import GuardianSettings
from leasehold.ha.settings import HaSettings
from leasehold.index.settings import IndexSettings
from leasehold.node.settings import NodeConfig, NodeSettings
from leasehold.wire.settings import WireSettings

SECTIONS: dict[str, type[Any]] = {
    "node": NodeSettings,
    "index": IndexSettings,
    "ha": HaSettings,
    "guardian": GuardianSettings,
    "wire": WireSettings,
    "security": SecuritySettings,
    "tls": TlsSettings,
    "events": EventSettings,
}


@click.command(
    cls=Explained,
    examples=(
        ("leasehold node --rpc 127.0.0.1:50051", "a single node, in memory only, to try it out"),
        (
            "leasehold node --name a --coord etcd://h1:2379,h2:2379 --rpc h4:50051 --admin h4:8700 --forward h4:50061",
            "one of several nodes: each has its own name and addresses",
        ),
        (
            "leasehold node --config /etc/leasehold.toml --lease-ttl 5s",
            "flags override the environment, which overrides the file",
        ),
    ),
)
@sections_options(SECTIONS)
def node(**options: Any) -> None:
    """Run one node of a cluster: the master for Mooncake's clients, or a hot standby.

    Every setting is a flag, a key of the TOML file, and an environment variable (in parentheses). Durations and sizes
    need a unit: 500ms, 10s, 5m; 64MiB, 1GiB.
    """
    exit_on_signals()  # the imports below take half a second; afterwards the guardian handles signals
    from leasehold.node.guardian.main import run_guardian
    from leasehold.runtime.open_files import raise_open_files
    from leasehold.runtime.private_files import make_files_private

    raise_open_files()
    make_files_private()
    run_guardian(
        NodeConfig(
            node=resolve_options(NodeSettings, "node", options).values,
            index=resolve_options(IndexSettings, "index", options).values,
            ha=resolve_options(HaSettings, "ha", options).values,
            guardian=resolve_options(GuardianSettings, "guardian", options).values,
            wire=resolve_options(WireSettings, "wire", options).values,
            security=resolve_options(SecuritySettings, "security", options).values,
            tls=resolve_options(TlsSettings, "tls", options).values,
            events=resolve_options(EventSettings, "events", options).values,
        )
    )
