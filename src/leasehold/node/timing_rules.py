"""Rules between the settings of a node, the worst-case outages that follow from them, and warnings. No I/O."""

from __future__ import annotations

from leasehold.base.errors import SettingError
from leasehold.base.text import without_password
from leasehold.base.units import format_bytes, format_duration_ms
from leasehold.leases import Plan, plan
from leasehold.node.settings import EVERYWHERE, NodeConfig, parse_compat, split_address

ETCD_ELECTION_MS = 1_000  # etcd's default election timeout, which etcd adds to every lease when its leader changes
EXPIRY_SCAN_MS = 500  # interval at which etcd looks for expired leases


def check(config: NodeConfig) -> None:
    """Raise `SettingError` with the rule that is broken."""
    config.ha.check()
    _check_order(config)
    _check_addresses(config)
    for law in leadership(config).broken:
        raise SettingError(f"leader_ttl and flush_interval: {law.name}: {law.why}")
    index, ha, guardian = config.index, config.ha, config.guardian
    gap_ms = host_death_ms(config)
    if index.client_ttl_ms < gap_ms:
        raise SettingError(
            f"client_ttl ({format_duration_ms(index.client_ttl_ms)}) must be longer than the outage after the death "
            f"of the primary's host ({format_duration_ms(gap_ms)}): raise it, or lower leader_ttl"
        )
    if guardian.hold_timeout_ms <= gap_ms:
        raise SettingError(
            f"hold_timeout ({format_duration_ms(guardian.hold_timeout_ms)}) must be longer than the outage after the "
            f"death of the primary's host ({format_duration_ms(gap_ms)}), or held connections are reset just before "
            "they could be forwarded: raise it, or lower leader_ttl"
        )
    if ha.call_deadline_ms >= 30_000:
        raise SettingError(
            f"call_deadline ({format_duration_ms(ha.call_deadline_ms)}) must be under 30s, because Mooncake's clients "
            "give up after 30s: lower it"
        )


def _check_order(config: NodeConfig) -> None:
    """Pairs of durations in which the first must not exceed the second."""
    index, ha, guardian, wire = config.index, config.ha, config.guardian, config.wire
    pairs = (
        ("urgent_flush_interval", ha.urgent_flush_interval_ms, "flush_interval", ha.flush_interval_ms),
        ("three times flush_interval", 3 * ha.flush_interval_ms, "unlogged_ttl_s", 1000 * ha.unlogged_ttl_s),
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
            f"({format_bytes(wire.buffered_bytes)}): a request of that size could never be received"
        )


def _check_addresses(config: NodeConfig) -> None:
    """Each listener needs its own address, and the published address must not be a wildcard."""
    node = config.node
    listening = {"rpc": node.rpc, "forward": node.forward, "admin": node.admin, "metadata_server": node.metadata_server}
    listening |= {f"rpc_compat {port.release}": port.address for port in parse_compat(node.rpc_compat, node.cluster)}
    taken: dict[tuple[str, int], str] = {}
    for setting, address in listening.items():
        if not address:
            continue
        host, port = split_address(address, setting)
        other = taken.setdefault((host, port), setting) if port else setting
        if other != setting:
            raise SettingError(f"{other} and {setting} are both '{address}': give each its own address")
        shared = not node.coord.startswith(("memory://", "embedded://"))
        if host in EVERYWHERE and not node.advertise and shared and setting != "metadata_server":
            raise SettingError(
                f"{setting} = '{address}': other hosts cannot connect to '{host}': use this host's address, or set "
                "--advertise HOST:PORT"
            )


def leadership(config: NodeConfig) -> Plan:
    """The plan for the leader lease; the guardian logs the rules that it calls risky."""
    embedded = config.node.coord.startswith(("embedded:", "memory:"))
    return plan(
        lease_ms=config.ha.leader_ttl_ms,
        renew_ms=config.ha.flush_interval_ms,
        drift_ppm=round(config.ha.drift * 1_000_000),
        election_timeout_ms=ETCD_ELECTION_MS,
        store="embedded" if embedded else "etcd",
    )


def host_death_ms(config: NodeConfig) -> int:
    """Longest time until the leader lease of a dead host expires, if the store is healthy."""
    return config.ha.lapse_ms() + EXPIRY_SCAN_MS


def worst_cases(config: NodeConfig) -> dict[str, str]:
    """The longest outage for each kind of failure, for the log."""
    ha, guardian = config.ha, config.guardian
    cases = {
        "worker_dies": "under 0.5s",
        "worker_hangs": format_duration_ms(guardian.heartbeat_timeout_ms + 500),
        "host_dies": format_duration_ms(host_death_ms(config)),
    }
    if config.node.coord.startswith(("etcd://", "etcds://")):
        restarted_ms = 2 * ha.leader_ttl_ms + ETCD_ELECTION_MS + EXPIRY_SCAN_MS
        cases["host_dies_while_etcd_restarts"] = f"{format_duration_ms(restarted_ms)} plus the restart of etcd"
    return cases


def waivers(config: NodeConfig) -> list[str]:
    """The guarantees that these settings give up, one sentence each; logged as warnings at the start."""
    found = []
    if config.ha.durability == "async":
        found.append("durability = async: a failover may lose the last acknowledged writes (P1 and P5 do not hold)")
    if config.ha.durability == "buffered" and config.node.buffer == "disk":
        found.append("durability = buffered on disk: buffered records survive a crash of the process, not of the host")
    if config.ha.copies == 1:
        found.append("copies = 1: truncated records are in one node's snapshot only; losing that disk loses them")
    if config.node.coord.startswith("memory://"):
        found.append("coord = memory://: all state is lost when the worker exits, and there is no standby")
    if config.ha.durability != "buffered" and config.node.buffer != "disk":
        found.append(
            f"buffer = '{without_password(config.node.buffer)}' is not used: durability is {config.ha.durability}"
        )
    for setting, address in (("admin", config.node.admin), ("forward", config.node.forward)):
        if split_address(address, setting)[0] in EVERYWHERE:
            found.append(
                f"{setting} = '{address}': every host that can reach it may control this node: see SECURITY.md"
            )
    return found
