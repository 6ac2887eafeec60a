"""What the settings of a node mean together: laws that must hold, and the worst cases that follow. Pure."""

from __future__ import annotations

from leasehold.base.errors import SettingError
from leasehold.base.units import format_bytes, format_duration_ms
from leasehold.coord.url import without_secrets
from leasehold.leases import Plan, plan
from leasehold.node.settings import EVERYWHERE, NodeConfig, parse_compat, split_address

ETCD_ELECTION_MS = 1_000  # etcd's default election timeout: it is added to every lease after a change of leader
EXPIRY_SCAN_MS = 500  # how often etcd looks for leases that have ended


def check(config: NodeConfig) -> None:
    """Raise with the law that does not hold."""
    config.ha.check()
    _check_order(config)
    _check_addresses(config)
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


def _check_order(config: NodeConfig) -> None:
    """Pairs of which the first may not be more than the second."""
    index, ha, guardian, wire = config.index, config.ha, config.guardian, config.wire
    pairs = (
        ("urgent", ha.urgent_ms, "beat", ha.beat_ms),
        ("three beats", 3 * ha.beat_ms, "bulk_ttl", 1000 * ha.bulk_ttl_s),
        ("put_discard", index.put_discard_ms, "put_release", index.put_release_ms),
        ("soft_pin_ttl", index.soft_pin_ttl_ms, "soft_pin_ttl_max", index.soft_pin_ttl_max_ms),
        ("restart_min", guardian.restart_min_ms, "restart_max", guardian.restart_max_ms),
    )
    for name, value_ms, bound, bound_ms in pairs:
        if value_ms > bound_ms:
            raise SettingError(
                f"{name} ({format_duration_ms(value_ms)}) must not be longer than "
                f"{bound} ({format_duration_ms(bound_ms)})"
            )
    if wire.frame_bytes > wire.buffered_bytes:
        raise SettingError(
            f"frame ({format_bytes(wire.frame_bytes)}) must not be larger than buffered "
            f"({format_bytes(wire.buffered_bytes)}): such a request could never be received"
        )


def _check_addresses(config: NodeConfig) -> None:
    """Each listener has an address of its own, and others are told one at which they find it."""
    node = config.node
    listening = {"rpc": node.rpc, "door": node.door, "admin": node.admin, "metadata_server": node.metadata_server}
    listening |= {f"rpc_compat {port.release}": port.address for port in parse_compat(node.rpc_compat, node.cluster)}
    taken: dict[tuple[str, int], str] = {}
    for setting, address in listening.items():
        if not address:
            continue
        host, port = split_address(address, setting)
        other = taken.setdefault((host, port), setting) if port else setting
        if other != setting:
            raise SettingError(f"{other} and {setting} are both {address}: give each an address of its own")
        shared = not node.coord.startswith(("memory://", "embedded://"))
        if host in EVERYWHERE and not node.advertise and shared and setting != "metadata_server":
            raise SettingError(
                f"{setting} = {address}: others cannot be sent to {host}: name this host's address, or tell it by "
                "--advertise HOST:PORT"
            )


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
    if config.ha.durability != "buffered" and config.node.buffer != "disk":
        said.append(f"buffer = {without_secrets(config.node.buffer)} is not used: durability is {config.ha.durability}")
    for setting, address in (("admin", config.node.admin), ("door", config.node.door)):
        if split_address(address, setting)[0] in EVERYWHERE:
            said.append(f"{setting} = {address}: everybody who can reach it may command this node: see SECURITY.md")
    return said
