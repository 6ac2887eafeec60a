"""The settings of a running node, for people."""

from __future__ import annotations

import dataclasses

from leasehold.admin.checkup import ShownConfig, ShownSetting
from leasehold.base.settings import specs
from leasehold.node.settings import NodeConfig


def shown_config(config: NodeConfig) -> ShownConfig:
    """Every setting with its value and its default. Passwords are masked by the settings themselves."""
    found = []
    for item in dataclasses.fields(config):
        section = getattr(config, item.name)
        default = type(section)()
        for name, (field, spec) in specs(type(section)).items():
            value, usual = spec.show(getattr(section, field)), spec.show(getattr(default, field))
            found.append(ShownSetting(f"{item.name}.{name}", value, usual))
    return ShownConfig(config.node.name, tuple(found))
