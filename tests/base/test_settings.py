"""Settings: file, environment, flags; later wins; whatever is wrong is named with its place."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from leasehold.base.errors import SettingError
from leasehold.base.settings import check_environment, choice, count, duration, flag, resolve, size, texts


@dataclass(frozen=True)
class Sample:
    lease_ttl_ms: int = duration("10s", low="10ms", high="1h", help="how long")
    buffer_bytes: int = size("64MiB", help="how much")
    replicas: int = count(1, low=1, high=9, help="how many")
    eager: bool = flag(False, help="whether")
    mode: str = choice("sync", "sync", "async", help="which")
    peers: tuple[str, ...] = texts(help="who")


def test_defaults_have_their_origin() -> None:
    resolved = resolve(Sample, "node")
    assert resolved.values == Sample()
    assert resolved.table()[0] == ("lease_ttl", "10s", "default")


def test_flags_win_over_environment_over_file() -> None:
    toml = '[node]\nlease_ttl = "1s"\nreplicas = 2\nbuffer = "1GiB"\npeers = ["a", "b"]\neager = true\n'
    environment = {"LEASEHOLD_NODE_REPLICAS": "3", "LEASEHOLD_NODE_BUFFER": "2GiB", "HOME": "/"}
    resolved = resolve(Sample, "node", toml=toml, environment=environment, flags={"buffer": "3GiB"})
    assert resolved.values == Sample(1000, 3 * 2**30, 3, True, "sync", ("a", "b"))
    assert resolved.origins["lease_ttl"] == "leasehold.toml:2"
    assert resolved.origins["replicas"] == "environment variable LEASEHOLD_NODE_REPLICAS"
    assert resolved.origins["buffer"] == "flag --buffer"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            '[node]\n\nlease_tll = "1s"',
            "leasehold.toml:3: unknown setting 'lease_tll' in [node]; did you mean 'lease_ttl'?",
        ),
        (
            '[node]\nlease_ttl = "2h"',
            "leasehold.toml:2: lease_ttl = '2h' is out of bounds; it takes 10ms to 1h",
        ),
        (
            "[node]\nlease_ttl = 10",
            "leasehold.toml:2: lease_ttl = 10: not a quantity with a unit, such as 10s, 500ms or 5m",
        ),
        ('[node]\nmode = "fast"', "leasehold.toml:2: mode = 'fast': choose one of sync, async"),
        ('[node]\nreplicas = "x"', "leasehold.toml:2: replicas = 'x'"),
        ("[node]\nreplicas = [1]", "a list is not a value for it"),
        ('[ node ]  # ours\n\nlease_ttl = "2h"', "leasehold.toml:3: lease_ttl"),
        ("[node\n", "leasehold.toml: not valid TOML"),
        ("node = 1", "[node] must be a table"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(toml: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        resolve(Sample, "node", toml=toml)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("LEASEHOLD_NOED_LEASE_TTL", "LEASEHOLD_NODE_LEASE_TTL"),
        ("LEASEHOLD_NODES_BUFFER", "LEASEHOLD_NODE_BUFFER"),
        ("LEASEHOLD_NODELEASE_TTL", "LEASEHOLD_NODE_LEASE_TTL"),
        ("LEASEHOLD_LEASE_TTL", "LEASEHOLD_NODE_LEASE_TTL"),
    ],
)
def test_a_variable_whose_section_is_misspelt_is_refused_with_the_one_that_was_meant(variable: str, meant: str) -> None:
    """It was ignored in silence, where an unknown key of a known section was refused."""
    with pytest.raises(SettingError) as caught:
        check_environment([variable], {"node": Sample}, ("node", "store"), ())
    assert str(caught.value) == f"environment variable {variable}: no such setting; did you mean {meant}?"


def test_variables_of_others_are_let_be() -> None:
    """What Kubernetes tells of a service of this name, another command's settings, what people keep for themselves."""
    service = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_RPC", "PORT", "PORT_50051_TCP", "PORT_50051_TCP_ADDR"]
    theirs = [f"LEASEHOLD_{name}" for name in (*service, "VERSION", "IMAGE", "HOME", "STORE_QUOTA", "CLUSTER_NAME")]
    check_environment([*theirs, "NOED_LEASE_TTL", "LEASEHOLD_COORD"], {"node": Sample}, ("node", "store"), ())
    of_the_node = dict.fromkeys((f"LEASEHOLD_NODE_{name}" for name in service), "tcp://10.96.0.7:50051")
    assert resolve(Sample, "node", environment=of_the_node).values == Sample()
    with pytest.raises(SettingError, match="unknown setting 'services'"):
        resolve(Sample, "node", environment={"LEASEHOLD_NODE_SERVICES": "2"})
