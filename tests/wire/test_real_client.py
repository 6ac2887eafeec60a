"""An unmodified Mooncake client does the same with our master as with its own: line for line."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.wire.conftest import need

from leasehold.testing.mooncake import NEWEST, OLDER, OLDEST, MooncakeMaster, OwnNode, run_client

SCRIPT = Path(__file__).parent / "clients" / "everything.py"
STEPS_MIN = 70


def story(master: str, metadata: str, version: str, length: str = "all") -> list[str]:
    done = run_client(SCRIPT, master, metadata, length, version=version, timeout_s=200)
    lines = [line for line in done.stdout.splitlines() if ": " in line]
    assert done.returncode == 0, f"{lines[-3:]}\n{done.stderr[-3000:]}"
    return lines


@pytest.mark.parametrize("version", [NEWEST, OLDER, OLDEST])
def test_a_real_client_sees_no_difference(version: str) -> None:
    need(version)
    with (
        MooncakeMaster("--default_kv_lease_ttl=60000", version=version) as theirs,
        OwnNode("--lease-ttl", "60s") as ours,
        ThreadPoolExecutor() as pool,
    ):
        port = {NEWEST: ours.rpc_port, OLDER: ours.compat_port, OLDEST: ours.oldest_port}[version]
        real = pool.submit(story, theirs.rpc, "P2PHANDSHAKE", version)
        own = pool.submit(story, f"127.0.0.1:{port}", "P2PHANDSHAKE", version)
        expected, found = real.result(), own.result()
    assert len(expected) >= (STEPS_MIN if version == NEWEST else STEPS_MIN - 6)
    assert found == expected


def test_the_metadata_server_serves_real_clients_too() -> None:
    need(NEWEST)
    with (
        MooncakeMaster("--default_kv_lease_ttl=60000", "--enable_http_metadata_server=true") as theirs,
        OwnNode("--lease-ttl", "60s") as ours,
        ThreadPoolExecutor() as pool,
    ):
        stories = [
            pool.submit(story, each.rpc, f"http://127.0.0.1:{each.metadata_port}/metadata", NEWEST, "brief")
            for each in (theirs, ours)
        ]
        expected, found = (each.result() for each in stories)
    assert len(expected) >= 20
    assert found == expected


def test_a_client_of_another_release_is_named_and_refused() -> None:
    """An older client on the newest port: setup and exist work, put is refused, and the log says whose fault it is."""
    need(OLDER)
    script = Path(__file__).parent / "clients" / "mismatch.py"
    with MooncakeMaster() as theirs, OwnNode() as ours:
        answers = [run_client(script, each.rpc, version=OLDER).stdout.splitlines()[-1] for each in (theirs, ours)]
        assert answers == ["setup 0, exist 0, put -900, get b''"] * 2
        log = ours.log_path.read_text()
    assert "client speaks another release of Mooncake" in log
    assert "0.3.12" in log
