"""What the settings of a node mean together: laws that must hold, and the worst cases that follow. Pure."""

from __future__ import annotations

from leasehold.base.errors import SettingError
from leasehold.base.units import format_duration_ms
from leasehold.leases import Plan, plan
from leasehold.node.settings import NodeConfig

ETCD_ELECTION_MS = 1_000  # etcd's default election timeout: it is added to every lease after a change of leader
EXPIRY_SCAN_MS = 500  # how often etcd looks for leases that have ended


def check(config: NodeConfig) -> None:
    """Raise with the law that does not hold."""
    config.ha.check()
    for law in leadership(config).broken:
        raise SettingError(f"leader_ttl and beat: {law.name}: {law.why}")
    index, ha, guardian = config.index, config.ha, config.guardian
    gap_ms = host_death_ms(config)
    if index.client_ttl_ms < gap_ms:
        raise SettingError(
            f"client_ttl ({format_duration_ms(index.client_ttl_ms)}) must outlast the time without a primary after a "
            f"host's death ({format_duration_ms(gap_ms)}): raise it, or lower leader_ttl"
        )
    if guardian.hold_timeout_ms <= gap_ms:
        raise SettingError(
            f"hold_timeout ({format_duration_ms(guardian.hold_timeout_ms)}) must outlast the same gap "
            f"({format_duration_ms(gap_ms)}): else held connections are reset just before they could be forwarded"
        )
    if ha.call_deadline_ms >= 30_000:
        raise SettingError("call_deadline must be under 30s: Mooncake's clients give up then, and would hear nothing")


def leadership(config: NodeConfig) -> Plan:
    """The planner's view of the leader's lease; what it calls risky is told in the log."""
    embedded = config.node.coord.startswith(("embedded:", "memory:"))
    return plan(
        lease_ms=config.ha.leader_ttl_ms,
        renew_ms=config.ha.beat_ms,
        drift_ppm=round(config.ha.drift * 1_000_000),
        election_timeout_ms=ETCD_ELECTION_MS,
        store="embedded" if embedded else "etcd",
    )


def host_death_ms(config: NodeConfig) -> int:
    """Until the lease of a dead host's leader has ended, at most, if the store is well."""
    return config.ha.lapse_ms() + EXPIRY_SCAN_MS


def worst_cases(config: NodeConfig) -> dict[str, str]:
    """How long nobody answers, at most, by what has happened: for the log, and for whoever plans."""
    ha, guardian = config.ha, config.guardian
    cases = {
        "worker_dies": "at once: under 0.5s",
        "worker_hangs": format_duration_ms(guardian.beat_timeout_ms + 500),
        "host_dies": format_duration_ms(host_death_ms(config)),
    }
    if config.node.coord.startswith(("etcd://", "etcds://")):
        restarted_ms = 2 * ha.leader_ttl_ms + ETCD_ELECTION_MS + EXPIRY_SCAN_MS
        cases["host_dies_while_etcd_restarts"] = f"{format_duration_ms(restarted_ms)} and the restart itself"
    return cases


def waivers(config: NodeConfig) -> list[str]:
    """What these settings give up, a sentence each: nobody should find out afterwards."""
    said = []
    if config.ha.durability == "async":
        said.append("durability = async: P1 and P5 do not hold for the last moments before a failover")
    if config.ha.durability == "buffered" and config.node.buffer == "disk":
        said.append("durability = buffered on disk: what is only in the buffer survives the process, not the host")
    if config.ha.copies == 1:
        said.append("copies = 1: what leaves the journal is in one node's snapshot only; losing that disk loses it")
    if config.node.coord.startswith("memory://"):
        said.append("coord = memory://: everything is gone with the worker; there is no standby")
    return said
