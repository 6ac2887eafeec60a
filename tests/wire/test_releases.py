"""The table of each release against its wheel, and clients of all releases on one index."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest
from tests.wire.conftest import need

from leasehold.base.errors import InvalidArgument
from leasehold.node.service.functions import _OFF
from leasehold.testing import mooncake
from leasehold.testing.releases import read_wheel, report_on
from leasehold.wire.body import type_hash
from leasehold.wire.tables import RELEASES, V0_3_13, find_release

SHARE = Path(__file__).parent / "clients" / "share.py"
WHEELS = (mooncake.OLDEST, mooncake.OLDER, mooncake.NEWEST)
OBJECTS = 20


def test_every_table_has_a_wheel() -> None:
    assert [find_release(version).name for version in WHEELS] == list(RELEASES)


@pytest.mark.parametrize("version", WHEELS)
def test_a_table_agrees_with_its_wheel(version: str) -> None:
    need(version)
    report = read_wheel(mooncake.venv(version))
    assert report.differences(find_release(version)) == []
    assert report.closest() is find_release(version)
    print(f"{version}: {len(report.functions)} functions, all with the names and hashes of the table")


def test_a_new_release_is_reported(tmp_path: Path) -> None:
    """A made-up release: one function is new, one has a new request, one has gone."""
    changed, gone = V0_3_13.functions["PutStart"], "QueryTask"
    hashes = {
        type_hash(each.literal)
        for function in V0_3_13.functions.values()
        if function.name != gone
        for each in (function.request, function.returns)
        if each is not None and each is not changed.request
    }
    hashes -= {changed.request_hash}
    names = [name for name in V0_3_13.functions if name not in (gone, "UpsertStart")] + ["Teleport"]
    text = "".join(f"x [with auto Func = &mooncake::WrappedMasterService::{name}]\0" for name in names)
    master = text.encode() + b"".join(struct.pack("<I", each | 1) for each in sorted(filter(None, hashes)))
    report = report_on(master, "made up")
    assert [each.name for each in report.functions if each.unknown] == ["PutStart", "Teleport"]
    assert report.differences(V0_3_13) == [
        "Teleport: in the wheel, not in the table",
        "QueryTask: in the table, not in the wheel",
        "UpsertStart: in the table, not in the wheel",
        "PutStart: the request has another type",
    ]
    wheel = tmp_path / "mooncake-9.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("mooncake/mooncake_master", master)
    shown = subprocess.run(
        [Path(__file__).parents[2] / "scripts" / "learn-release", wheel], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 1
    assert "| Teleport | no table: **new** | no table: **new** |" in shown.stdout
    assert "closest table: 0.3.13" in shown.stdout


def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"nothing")
    for path in (tmp_path / "x.whl", tmp_path, tmp_path / "absent"):
        with pytest.raises(InvalidArgument):
            read_wheel(path)


def test_clients_of_three_releases_share_one_index() -> None:
    for version in WHEELS:
        need(version)
    with mooncake.OwnNode("--lease-ttl", "60s") as node:
        ports = dict(zip(WHEELS, (node.oldest_port, node.compat_port, node.rpc_port), strict=True))
        processes = {
            version: subprocess.Popen(
                [mooncake.venv(version) / "bin" / "python", SHARE, f"127.0.0.1:{port}", version, str(OBJECTS)],
                env={**os.environ, **mooncake.client_environment(version)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for version, port in ports.items()
        }  # fmt: skip
        try:
            answers = {version: _line(process) for version, process in processes.items()}
            assert answers == dict.fromkeys(WHEELS, f"put {OBJECTS}")
            for reader, process in processes.items():
                for owner in WHEELS:
                    assert process.stdin is not None
                    process.stdin.write(f"{owner}\n")
                    process.stdin.flush()
                    assert _line(process) == f"{owner} {OBJECTS} {OBJECTS}", f"{reader} reads the objects of {owner}"
        finally:
            for process in processes.values():
                process.kill()
                process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    """The next line that is ours: the client logs to standard output, too."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(("put ", *WHEELS)):
            return line.strip()
    return ""


def test_the_function_table_in_the_docs_is_complete() -> None:
    """Each function is implemented, or off with a reason. A change that switches one on changes its row, too."""
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
    found = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+) \|$", page, re.MULTILINE)
    assert [name for name, _, _ in found] == list(V0_3_13.functions)
    for name, since, status in found:
        assert since == next(release.name for release in RELEASES.values() if name in release.functions), name
        implemented = status in ("implemented", "implemented; off unless `--enable-offload true`")
        assert implemented != (name in _OFF), f"{name}: its row in docs/wire.md says '{status}'"
        assert implemented or status.startswith("off: "), name
