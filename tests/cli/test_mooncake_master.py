"""`leasehold mooncake-master`: the command line of the C++ master, read as it reads it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest

from leasehold.cli.mooncake_flags import FLAG_TYPES, FlagError, parse
from leasehold.cli.mooncake_master import read_command_line, translate
from leasehold.testing import mooncake
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.ports import free_ports, listens
from leasehold.testing.process import ServerProcess, wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def wheel() -> None:
    if (reason := mooncake.why_missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")


def translated(*flags: str) -> tuple[dict[str, str], list[str]]:
    """The flags of `leasehold node`, and the warnings."""
    warnings: list[str] = []
    arguments = translate(read_command_line(list(flags), warnings.append), warnings.append)
    return dict(zip(arguments[::2], arguments[1::2], strict=True)), warnings


def test_flags_are_translated() -> None:
    given, warnings = translated(
        "--rpc_port=50051", "--rpc_address", "10.0.0.4", "-metrics_port=9100", "--enable_ha", "--noenable_offload",
        "--etcd_endpoints=http://h1:2379;h2:2379", "--cluster_id=blue", "--default_kv_lease_ttl=5000",
        "--default_kv_soft_pin_ttl=10m", "--client_ttl=20", "--eviction_ratio=0.1", "--allocation_strategy=random",
        "--enable_http_metadata_server=true", "--http_metadata_server_port=8081", "--logtostderr", "ignored",
    )  # fmt: skip
    assert given.items() >= {
        "--rpc": "10.0.0.4:50051", "--forward": "10.0.0.4:0", "--admin": "0.0.0.0:9100",
        "--coord": "etcd://h1:2379,h2:2379", "--cluster": "blue", "--lease-ttl": "5s", "--soft-pin-ttl": "10m",
        "--client-ttl": "20s", "--eviction-ratio": "0.1", "--allocation": "random",
        "--metadata-server": "0.0.0.0:8081",
    }.items()  # fmt: skip
    assert not warnings
    assert given["--enable-offload"] == "false"


def test_flags_without_meaning_are_accepted_with_a_warning() -> None:
    given, warnings = translated("--rpc_thread_num=8", "--memory_allocator=cachelib", "--default_kv_lease_ttl=1")
    assert [re.findall(r"--(\w+)", warning)[0] for warning in warnings] == [
        "rpc_thread_num", "memory_allocator", "default_kv_lease_ttl",
    ]  # fmt: skip
    assert given["--lease-ttl"] == "10ms", "the shortest lease here"


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_config_file_is_read_and_flags_override_it(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"master{suffix}"
    values = {"rpc_port": 6001, "client_live_ttl_sec": 30, "enable_ha": False, "metrics_port": 6002, "other": 1}
    path.write_text(json.dumps(values))  # JSON is YAML, too
    given, warnings = translated(f"--config_path={path}", "--metrics_port=6003")
    assert (given["--rpc"], given["--client-ttl"], given["--admin"]) == ("0.0.0.0:6001", "30s", "0.0.0.0:6003")
    assert [warning for warning in warnings if "'other'" in warning]


def test_flag_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "flags"
    path.write_text("# a comment\n--rpc_port=6001\n\n--noenable_ha\n")
    assert translated(f"--flagfile={path}", "--rpc_address=::1")[0]["--rpc"] == "[::1]:6001"
    path.write_text(f"--flagfile={path}\n")
    with pytest.raises(FlagError, match="circle"):
        translated(f"--flagfile={path}")


BAD = (
    "--nope=1",
    "--rpc_port=abc",
    "--rpc_port=99999999999",
    "--rpc_port",
    "--enable_ha=maybe",
    "--eviction_ratio=x",
    "--eviction_ratio=2",
    "--enable_ha=true",
    "--enable_oplog=true",
    "--memory_allocator=zzz",
    "--default_kv_lease_ttl=-5",
    "--config_path=/nope.yaml",
    "--config_path=/nope.toml",
    "--flagfile=/nope",
)


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize("flag", BAD)
def test_wrong_values_are_errors_as_in_the_real_master(flag: str) -> None:
    real = subprocess.run(
        [mooncake.venv() / "bin" / "mooncake_master", flag],
        env={**os.environ, **mooncake.client_environment()}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert real.returncode != 0, "the real master refuses it"
    with pytest.raises(FlagError) as error:
        translated(flag)
    if real.stderr.startswith("ERROR: "):
        assert str(error.value).startswith(real.stderr.split(";")[0].strip())


def test_an_error_is_one_line_and_the_exit_code_of_the_real_master() -> None:
    ours = subprocess.run(
        [sys.executable, "-m", "leasehold", "mooncake-master", "-http_metadata_server_port", "x"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    expected = "ERROR: illegal value 'x' specified for int32 flag 'http_metadata_server_port'\n"
    assert (ours.returncode, ours.stderr) == (1, expected)


@pytest.mark.usefixtures("wheel")
def test_every_flag_of_the_real_master_is_known() -> None:
    shown = subprocess.run(
        [mooncake.venv() / "bin" / "mooncake_master", "--helpfull"],
        env={**os.environ, **mooncake.client_environment()}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    text = re.sub(r"\n {6}", " ", shown.stdout)
    sources = re.split(r"\n\s*Flags from ", text)
    parsed = {
        name: kind
        for source in sources
        if not source.partition(":")[0].rpartition("/")[2].startswith("gflags")
        for name, kind in re.findall(r"^ {4}-(\w+) .*?type: (\w+)", source, re.MULTILINE)
    }
    assert len(parsed) >= 100
    assert parsed == FLAG_TYPES


def test_unknown_flags_can_be_allowed() -> None:
    assert parse(["--undefok=later", "--later=1", "--rpc_port=1"], lambda _: "").values == {"rpc_port": 1}


class Launched(ServerProcess):
    """`leasehold mooncake-master` as a launch script starts it."""

    def __init__(self, folder: Path, *flags: str) -> None:
        rpc_port, admin_port = free_ports(2)
        self.admin_port = admin_port
        argv = [sys.executable, "-m", "leasehold", "mooncake-master", f"--rpc_port={rpc_port}"]
        argv += ["--rpc_address=127.0.0.1", f"--metrics_port={admin_port}", "--metrics_host=127.0.0.1", *flags]
        argv += ["--", "--data-dir", str(folder / str(rpc_port)), "--name", f"n{rpc_port}"]
        super().__init__(
            "mooncake-master", argv, log_path=folder / f"{rpc_port}.log", probe=lambda: listens(admin_port)
        )

    def role(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/role", timeout=20) as answer:
            return str(answer.read().decode())


def test_two_masters_with_the_flags_of_mooncake_are_a_cluster(etcd: EtcdCluster, tmp_path: Path) -> None:
    endpoints = etcd.url.partition("://")[2].replace(",", ";")
    flags = ("--enable_ha=true", f"--etcd_endpoints={endpoints}", "--cluster_id=flags", "--enable_oplog=true")
    with Launched(tmp_path, *flags) as one, Launched(tmp_path, *flags) as other:
        wait_until(lambda: sorted((one.role(), other.role())) == ["leader", "standby"], "one leads")


def test_the_companion_package_installs_the_command(tmp_path: Path) -> None:
    """An extra cannot install a command: `leasehold[mooncake-master]` requires a package that does."""
    folder = ROOT / "packaging" / "mooncake-master"
    main, companion = (tomllib.loads((each / "pyproject.toml").read_text())["project"] for each in (ROOT, folder))
    assert f"{companion['name']}=={companion['version']}" in main["optional-dependencies"]["mooncake-master"]
    assert companion["version"] == main["version"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(tmp_path), str(folder)], check=True, timeout=120)
    shown = subprocess.run(
        [tmp_path / "bin" / "mooncake_master", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (shown.returncode, shown.stdout.split()[0]) == (0, "leasehold"), shown.stderr
