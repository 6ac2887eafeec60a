"""`leasehold store` as people run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import leasehold
from leasehold.cli.store import store as store_command
from leasehold.testing.certificates import CertificateAuthority
from leasehold.testing.store import StoreProcess

COMMAND = [sys.executable, "-m", "leasehold", "store"]


def refusal(*arguments: str) -> str:
    """The error of a process that does not start."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def quick_refusal(*arguments: str) -> str:
    """The same, for the command in this process."""
    done = CliRunner().invoke(store_command, arguments)
    assert done.exit_code != 0
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        assert isinstance(done.exception, leasehold.LeaseholdError), done.exception
        return str(done.exception)
    return done.output


async def test_it_says_where_it_listens_and_ends_in_order(store: StoreProcess) -> None:
    async with await leasehold.connect(store.url) as client:
        await client.put(b"a")
    store.stop()
    log = store.log_tail()
    assert f"serves etcd://{store.endpoint}, data in '{store.data_dir}'" in log
    assert "the store shuts down" in log
    assert "Traceback" not in log
    store.start()
    async with await leasehold.connect(store.url) as client:
        assert await client.get_one(b"a") is not None


def test_what_it_refuses(store: StoreProcess, tmp_path: Path) -> None:
    assert "Address already in use" in refusal("--listen", store.endpoint)
    in_use = quick_refusal("--listen", "127.0.0.1:0", "--data", str(store.data_dir))
    assert f"open in another process (pid {store.pid})" in in_use
    assert "an example is 127.0.0.1:2379" in quick_refusal("--listen", "nonsense")
    assert "quota" in quick_refusal("--quota", "1KiB")
    log = str(store.log_path)
    assert "--tls-key" in quick_refusal("--tls-cert", log)
    assert "--restore needs --data" in quick_refusal("--restore", log)
    assert "not a file of a Leasehold store" in quick_refusal("--restore", log, "--data", str(tmp_path / "new"))


def test_a_damaged_store_is_refused_in_one_line(store: StoreProcess) -> None:
    store.stop()
    (log,) = store.data_dir.glob("*.log")
    log.write_bytes(b"rubbish" + log.read_bytes())
    error = refusal("--listen", "127.0.0.1:0", "--data", str(store.data_dir))
    assert str(log) in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("mutual", [False, True])
async def test_tls(tmp_path: Path, mutual: bool) -> None:
    authority = CertificateAuthority()
    certificate, key = authority.server_files(tmp_path)
    arguments = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    ca = authority.ca_file(tmp_path)
    if mutual:
        arguments += ["--tls-client-ca", str(ca)]
    with StoreProcess(data_dir=tmp_path / "store", arguments=arguments) as store:
        url = f"etcds://{store.endpoint}"
        if mutual:
            async with await leasehold.connect(url, ca=ca, timeout_s=2) as stranger:
                with pytest.raises(leasehold.Unavailable):
                    await stranger.get(b"a")
            own, own_key = authority.client()
            connecting = leasehold.connect(url, ca=ca, cert=own, key=own_key)
        else:
            connecting = leasehold.connect(url, ca=ca)
        async with await connecting as client:
            await client.put(b"a")
