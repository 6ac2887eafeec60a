"""Translates the config of a put from the wire to the index, with the checks of the C++ master."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from leasehold.base.codes import Code
from leasehold.index.model import PutConfig
from leasehold.wire import messages as m


class BatchConfig(Struct, frozen=True):
    """A config as it applies to one or to many objects: groups are named one for each."""

    code: int
    base: PutConfig
    groups: list[bytes] | None
    for_one: PutConfig | int  # the config of a single object, or an error code

    def for_many(self, count: int) -> list[PutConfig] | int:
        """One config for each of `count` objects, or an error code for all."""
        if self.code:
            return self.code
        if self.groups is None:
            return [self.base] * count
        return [_grouped(self.base, group) for group in self.groups] if len(self.groups) == count else Code.BAD_PARAMS


def _grouped(base: PutConfig, group: bytes) -> PutConfig:
    return msgspec.structs.replace(base, group=group)


def config_of(
    config: m.ReplicateConfig | m.ReplicateConfig0312, soft_pin_ttl_max_ms: int, *, native: bool = False
) -> BatchConfig:
    """Translate and check. A refused config carries its code; the index checks the rest."""
    if isinstance(config, m.ReplicateConfig0312):
        config = _modern(config)
    preferred = list(config.preferred_segments)
    if config.preferred_segment and config.preferred_segment not in preferred:
        preferred.append(config.preferred_segment)
    base = PutConfig(
        replicas=config.replica_num,
        soft_pin=config.soft_pin_action,
        soft_pin_ttl_ms=config.soft_pin_ttl_ms,
        hard_pin=config.with_hard_pin,
        preferred_segments=tuple(preferred),
        preferred_host=config.host_id if config.prefer_same_node else "",
        host=config.host_id,
        native=native,
        data_type=config.data_type,
    )
    code, groups = _verdict(config, soft_pin_ttl_max_ms), config.group_ids
    single: PutConfig | int = code or base
    if not code and groups is not None:
        single = _grouped(base, groups[0]) if len(groups) == 1 else Code.BAD_PARAMS
    return BatchConfig(code, base, groups, single)


def _verdict(config: m.ReplicateConfig, soft_pin_ttl_max_ms: int) -> int:
    ttl_ms = config.soft_pin_ttl_ms
    if config.dfs_replica_num:
        return Code.NO_DFS
    if not config.replica_num or config.nof_replica_num or config.soft_pin_action > m.SoftPin.DISABLE:
        return Code.BAD_PARAMS
    if ttl_ms is not None and (config.soft_pin_action != m.SoftPin.ENABLE or not 0 <= ttl_ms <= soft_pin_ttl_max_ms):
        return Code.BAD_PARAMS
    return Code.OK


def _modern(old: m.ReplicateConfig0312) -> m.ReplicateConfig:
    """A 0.3.12 config in the words of today: its soft pin was a yes or no."""
    return m.ReplicateConfig(
        replica_num=old.replica_num,
        nof_replica_num=old.nof_replica_num,
        soft_pin_action=m.SoftPin.ENABLE if old.with_soft_pin else m.SoftPin.PRESERVE,
        with_hard_pin=old.with_hard_pin,
        preferred_segments=old.preferred_segments,
        preferred_segment=old.preferred_segment,
        preferred_nof_segments=old.preferred_nof_segments,
        prefer_same_node=old.prefer_same_node,
        data_type=old.data_type,
        host_id=old.host_id,
        group_ids=old.group_ids,
    )
