"""`leasehold node`: run one node."""

from __future__ import annotations

from typing import Any

import click

from leasehold.cli.settings import resolve_options, sections_options
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
}


@click.command()
@sections_options(SECTIONS)
def node(**options: Any) -> None:
    """Run one node of a cluster: a master for Mooncake's clients, or a hot standby of one."""
    from leasehold.node.guardian.main import run_guardian

    run_guardian(
        NodeConfig(
            node=resolve_options(NodeSettings, "node", options).values,
            index=resolve_options(IndexSettings, "index", options).values,
            ha=resolve_options(HaSettings, "ha", options).values,
            guardian=resolve_options(GuardianSettings, "guardian", options).values,
            wire=resolve_options(WireSettings, "wire", options).values,
        )
    )
