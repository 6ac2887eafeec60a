"""Settings: file, environment, flags; the later one wins; an error names the setting and where it was set."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from leasehold.base import renamed
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
            "leasehold.toml:2: lease_ttl = '2h' is out of bounds; use 10ms to 1h",
        ),
        (
            "[node]\nlease_ttl = 10",
            "leasehold.toml:2: lease_ttl = 10: not a number with a unit; write for example 10s, 500ms or 5m",
        ),
        ('[node]\nmode = "fast"', "leasehold.toml:2: mode = 'fast' is not a choice; use one of sync, async"),
        ('[node]\nreplicas = "x"', "leasehold.toml:2: replicas = 'x'"),
        ("[node]\nreplicas = [1]", "expected number, not a list"),
        ('[ node ]  # ours\n\nlease_ttl = "2h"', "leasehold.toml:3: lease_ttl"),
        ("[node\n", "leasehold.toml: not valid TOML"),
        ("node = 1", "[node] must be a table"),
    ],
)
def test_an_error_names_the_setting_and_the_line(toml: str, message: str) -> None:
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
def test_a_variable_with_a_misspelt_section_is_rejected_with_a_suggestion(variable: str, meant: str) -> None:
    """Such a variable used to have no effect, without any message."""
    with pytest.raises(SettingError) as caught:
        check_environment([variable], {"node": Sample}, ("node", "store"), ())
    assert str(caught.value) == f"environment variable {variable}: no such setting; did you mean {meant}?"


def test_variables_of_other_programs_are_ignored() -> None:
    """Variables that Kubernetes sets for a service of this name, settings of other commands, users' own variables."""
    service = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_RPC", "PORT", "PORT_50051_TCP", "PORT_50051_TCP_ADDR"]
    theirs = [f"LEASEHOLD_{name}" for name in (*service, "VERSION", "IMAGE", "HOME", "STORE_QUOTA", "CLUSTER_NAME")]
    check_environment([*theirs, "NOED_LEASE_TTL", "LEASEHOLD_COORD"], {"node": Sample}, ("node", "store"), ())
    of_the_node = dict.fromkeys((f"LEASEHOLD_NODE_{name}" for name in service), "tcp://10.96.0.7:50051")
    assert resolve(Sample, "node", environment=of_the_node).values == Sample()
    with pytest.raises(SettingError, match="unknown setting 'services'"):
        resolve(Sample, "node", environment={"LEASEHOLD_NODE_SERVICES": "2"})


@dataclass(frozen=True)
class Renamed:
    """A section with the new names of `base/renamed.py`."""

    flush_interval_ms: int = duration("1s", help="interval")


def test_an_old_name_works_from_every_source_and_warns() -> None:
    old = next(old for old, new in renamed.SETTINGS["ha"].items() if new == "flush_interval")
    toml = f'[ha]\n{old} = "2s"\n'
    variable = f"LEASEHOLD_HA_{old.upper()}"
    for resolved, where, new in (
        (resolve(Renamed, "ha", toml=toml), f"leasehold.toml:2: '{old}'", "'flush_interval'"),
        (
            resolve(Renamed, "ha", environment={variable: "2s"}),
            f"environment variable {variable}",
            "LEASEHOLD_HA_FLUSH_INTERVAL",
        ),
        (resolve(Renamed, "ha", flags={old: "2s"}), f"flag --{old}", "--flush-interval"),
    ):
        assert resolved.values == Renamed(2_000)
        (line,) = resolved.warnings
        assert line.startswith(f"{where} was renamed to {new}: change it")


def test_the_new_name_wins_over_the_old_one_and_a_later_source_over_an_earlier_one() -> None:
    old = next(old for old, new in renamed.SETTINGS["ha"].items() if new == "flush_interval")
    both = resolve(Renamed, "ha", toml=f'[ha]\nflush_interval = "3s"\n{old} = "2s"\n')
    assert both.values == Renamed(3_000)
    later = resolve(Renamed, "ha", toml='[ha]\nflush_interval = "3s"\n', flags={old: "2s"})
    assert later.values == Renamed(2_000)
    with pytest.raises(SettingError, match=f"unknown setting '{old}'"):
        resolve(Sample, "node", flags={old: "2s"})
