"""The checks of `leasehold doctor` that need a broken machine, on a gathered view."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import msgspec
import pytest

from leasehold.admin.checkup import ClockReading, DiskCheckup, HostCheckup, NodeCheckup, StoreCheckup
from leasehold.admin.doctor import ClockSample, ClusterCheckup, ExaminedNode, diagnose
from leasehold.admin.status import ClusterStatus, NodeStatus, Peer
from leasehold.runtime.certificate_end import end_of
from leasehold.runtime.certificates import CertificateFolder

GIB = 1 << 30
NOW_S = 1_800_000_000
HEALTHY = NodeCheckup(
    name="a",
    store=StoreCheckup(read_ms=(1, 2, 90)),
    disk=DiskCheckup("/data", "", 50 * GIB, 100 * GIB, (3, 4, 900)),
    files_open=40,
    files_max=20_000,
    files_needed=14_000,
    drift=0.01,
    store_timeout_ms=1_000,
    commit_p99_ms=5,
)


def sample(at_ms: int, boot_ms: float, round_trip_ms: int = 1) -> ClockSample:
    return ClockSample(
        (at_ms - round_trip_ms) * 1_000, at_ms * 1_000, ClockReading("x", int(boot_ms * 1_000), at_ms * 1_000)
    )


def node(name: str, checkup: NodeCheckup = HEALTHY, rate: float = 1.0, round_trip_ms: int = 1) -> ExaminedNode:
    leads = name == "a"
    status = NodeStatus(
        name=name, run="r", cluster="c", version="1", role="primary" if leads else "standby", reason="",
        may_serve=leads, ready=True,
    )  # fmt: skip
    clocks = (sample(0, 0, round_trip_ms), sample(2_000, 2_000 * rate, round_trip_ms))
    return ExaminedNode(name=name, admin=f"{name}:8700", status=status, checkup=checkup, clocks=clocks)


def checks(one: ExaminedNode, other: ExaminedNode | None = None) -> list[str]:
    nodes = (one, other or node("b"))
    peers = tuple(Peer(each.name, "standby", True, 0, "", each.admin, leads=each.name == "a") for each in nodes)
    cluster = ClusterStatus(cluster="c", leader="a", nodes=peers)
    return [found.check for found in diagnose(ClusterCheckup(now_s=NOW_S, nodes=nodes, cluster=cluster))]


def test_one_slow_answer_of_a_busy_machine_is_no_finding() -> None:
    assert checks(node("a")) == []


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"disk": DiskCheckup("/data", "", 5 * GIB, 100 * GIB)}, "disk-full"),
        ({"disk": DiskCheckup("/data", "", 50 * GIB, 100 * GIB, (1, 1_500, 2_000))}, "disk-slow"),
        ({"disk": DiskCheckup("/data", "Read-only file system")}, "disk-unwritable"),
        ({"store": StoreCheckup(read_ms=(150, 160, 1))}, "store-slow"),
        ({"store": StoreCheckup(database_bytes=int(1.9 * GIB))}, "store-size"),
        ({"store": StoreCheckup(certificate_ends_s={"e:2379": NOW_S - 5})}, "certificate"),
        ({"files_open": 19_000}, "file-descriptors"),
        ({"hosts": (HostCheckup("h", "h:1", "Connection refused"),)}, "storage-host"),
    ],
)
def test_each_problem_is_found(change: dict[str, object], check: str) -> None:
    assert checks(node("a", msgspec.structs.replace(HEALTHY, **change))) == [check]


def test_a_large_disk_may_be_fuller() -> None:
    disk = DiskCheckup("/data", "", 50 * GIB, 4_000 * GIB)
    assert checks(node("a", msgspec.structs.replace(HEALTHY, disk=disk))) == []


def test_the_rate_of_a_clock_counts_only_beyond_what_the_network_explains() -> None:
    assert checks(node("a"), node("b", rate=1.02)) == ["clock-drift"]
    assert checks(node("a"), node("b", rate=1.02, round_trip_ms=30)) == []
    assert checks(node("a"), node("b", rate=1.005)) == []


@pytest.mark.parametrize("days", [2, -1, 20_000])
def test_the_end_of_a_certificate_is_read_also_when_it_has_expired(tmp_path: Path, days: int) -> None:
    """20,000 days: after 2049 a certificate has another form of time."""
    authority = CertificateFolder(tmp_path)
    authority.make_authority()
    file = authority.issue("server", ["127.0.0.1"], days)
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", file], capture_output=True, text=True, check=True, timeout=20
    )
    expected = ssl.cert_time_to_seconds(shown.stdout.strip().partition("=")[2])
    assert end_of(ssl.PEM_cert_to_DER_cert(file.read_text())) == expected


@pytest.mark.parametrize(
    "raw", [b"", b"\x30", b"\x30\x82\xff\xff", b"\x30\x03\x02\x01\x05", b"\x16\x03\x01\x00\x00" * 9]
)
def test_other_bytes_are_no_certificate(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        end_of(raw)
