"""Settings that cannot work together are refused at start, with the law that they break."""

from __future__ import annotations

import pytest

from leasehold.base.errors import SettingError
from leasehold.ha.guardian import GuardianSettings
from leasehold.ha.settings import HaSettings
from leasehold.index.settings import IndexSettings
from leasehold.node.laws import check, waivers, worst_cases
from leasehold.node.settings import NodeConfig, NodeSettings, parse_compat, split_address


def test_the_defaults_obey_every_law() -> None:
    check(NodeConfig())
    assert worst_cases(NodeConfig())["host_dies"] == "3.531s"


@pytest.mark.parametrize(
    ("config", "law"),
    [
        (NodeConfig(index=IndexSettings(client_ttl_ms=2_000)), "client_ttl"),
        (NodeConfig(guardian=GuardianSettings(hold_timeout_ms=1_000)), "hold_timeout"),
        (NodeConfig(ha=HaSettings(call_deadline_ms=40_000)), "call_deadline"),
        (NodeConfig(ha=HaSettings(leader_ttl_ms=1_500)), "leader_ttl"),
    ],
)
def test_a_broken_law_is_named(config: NodeConfig, law: str) -> None:
    with pytest.raises(SettingError, match=law):
        check(config)


def test_a_compat_port_has_a_release_an_address_and_a_cluster() -> None:
    (port,) = parse_compat(("0.3.12=127.0.0.1:50053", "cluster=old"), "mooncake_cluster")
    assert (port.release, port.address, port.cluster) == ("0.3.12", "127.0.0.1:50053", "old")
    for bad in (("cluster=x",), ("0.3.12",), ("0.3.12=nowhere",)):
        with pytest.raises(SettingError, match="rpc_compat"):
            parse_compat(bad, "c")
    with pytest.raises(SettingError, match="admin"):
        split_address("127.0.0.1", "admin")


def test_what_is_given_up_is_said() -> None:
    strict = NodeConfig(node=NodeSettings(coord="etcd://127.0.0.1:2379"))
    assert waivers(strict) == []
    assert "P1 and P5" in waivers(NodeConfig(node=strict.node, ha=HaSettings(durability="async")))[0]
    assert "not the host" in waivers(NodeConfig(node=strict.node, ha=HaSettings(durability="buffered")))[0]
    assert len(waivers(NodeConfig(ha=HaSettings(copies=1)))) == 2
