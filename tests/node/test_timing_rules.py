"""Settings that cannot work together are rejected at the start, with the rule that they break."""

from __future__ import annotations

import pytest

from leasehold.base.errors import SettingError
from leasehold.ha.guardian import GuardianSettings
from leasehold.ha.settings import HaSettings
from leasehold.index.settings import IndexSettings
from leasehold.node.settings import NodeConfig, NodeSettings, parse_compat, published_address, split_address
from leasehold.node.timing_rules import check, waivers, worst_cases
from leasehold.wire.settings import WireSettings


def test_the_defaults_keep_every_rule() -> None:
    check(NodeConfig())
    assert worst_cases(NodeConfig())["host_dies"] == "3.531s"


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (NodeConfig(index=IndexSettings(client_ttl_ms=2_000)), "client_ttl"),
        (NodeConfig(guardian=GuardianSettings(hold_timeout_ms=1_000)), "hold_timeout"),
        (NodeConfig(ha=HaSettings(call_deadline_ms=40_000)), "call_deadline"),
        (NodeConfig(ha=HaSettings(leader_ttl_ms=1_500)), "leader_ttl"),
        (
            NodeConfig(ha=HaSettings(urgent_flush_interval_ms=1_000, flush_interval_ms=500)),
            r"urgent_flush_interval \(1s\) must not be longer than flush_interval",
        ),
        (
            NodeConfig(ha=HaSettings(unlogged_ttl_s=2)),
            r"three times flush_interval \(3s\) must not be longer than unlogged_ttl_s \(2s\)",
        ),
        (NodeConfig(index=IndexSettings(put_release_ms=1_000)), "put_discard .* must not be longer than put_release"),
        (NodeConfig(index=IndexSettings(soft_pin_ttl_max_ms=0)), "soft_pin_ttl .* must not be longer"),
        (NodeConfig(guardian=GuardianSettings(restart_min_ms=20_000)), "restart_min .* must not be longer"),
        (NodeConfig(wire=WireSettings(frame_bytes=1 << 30, buffered_bytes=1 << 20)), "could never be received"),
        (NodeConfig(node=NodeSettings(admin="127.0.0.1:50051")), "rpc and admin are both '127.0.0.1:50051': give each"),
        (
            NodeConfig(node=NodeSettings(rpc_compat=("0.3.12=127.0.0.1:50051",))),
            "rpc and rpc_compat 0.3.12 are both '127.0.0.1:50051'",
        ),
        (NodeConfig(node=NodeSettings(metadata_server="127.0.0.1:8700")), "admin and metadata_server are both"),
        (
            NodeConfig(node=NodeSettings(rpc="0.0.0.0:50051", coord="etcd://a")),
            "other hosts cannot connect to '0.0.0.0': .*--advertise HOST:PORT",
        ),
        (
            NodeConfig(node=NodeSettings(admin="[::]:8700", coord="etcd://a")),
            "admin = .*: other hosts cannot connect to '::'",
        ),
    ],
)
def test_a_broken_rule_is_named(config: NodeConfig, rule: str) -> None:
    with pytest.raises(SettingError, match=rule):
        check(config)


def test_a_compat_port_has_a_release_an_address_and_a_cluster() -> None:
    (port,) = parse_compat(("0.3.12=127.0.0.1:50053", "cluster=old"), "mooncake_cluster")
    assert (port.release, port.address, port.cluster) == ("0.3.12", "127.0.0.1:50053", "old")
    for bad in (("cluster=x",), ("0.3.12",), ("0.3.12=nowhere",)):
        with pytest.raises(SettingError, match="rpc_compat"):
            parse_compat(bad, "c")
    with pytest.raises(SettingError, match="admin"):
        split_address("127.0.0.1", "admin")


def test_free_ports_and_wildcard_addresses_are_accepted() -> None:
    check(NodeConfig(node=NodeSettings(rpc="127.0.0.1:0", admin="127.0.0.1:0")))
    check(NodeConfig(node=NodeSettings(rpc="0.0.0.0:50051", admin="0.0.0.0:8700")))
    everywhere = NodeSettings(rpc="0.0.0.0:50051", admin="[::]:8700", coord="etcd://a", advertise="10.0.0.11:50051")
    check(NodeConfig(node=everywhere))
    assert "every host that can reach it may control this node" in waivers(NodeConfig(node=everywhere))[0]
    assert published_address("0.0.0.0:8700", everywhere.advertise) == "10.0.0.11:8700"
    assert published_address("10.0.0.9:8700", everywhere.advertise) == "10.0.0.9:8700"
    assert published_address("[::]:8700", "[fe80::1]:1") == "[fe80::1]:8700"


def test_guarantees_given_up_are_listed() -> None:
    strict = NodeConfig(node=NodeSettings(coord="etcd://127.0.0.1:2379"))
    assert waivers(strict) == []
    tape = NodeSettings(coord="etcd://a", buffer="redis://u:secret@h:6379")
    assert waivers(NodeConfig(node=tape)) == ["buffer = 'redis://u:***@h:6379' is not used: durability is sync"]
    assert "P1 and P5" in waivers(NodeConfig(node=strict.node, ha=HaSettings(durability="async")))[0]
    assert "not of the host" in waivers(NodeConfig(node=strict.node, ha=HaSettings(durability="buffered")))[0]
    assert len(waivers(NodeConfig(ha=HaSettings(copies=1)))) == 2
