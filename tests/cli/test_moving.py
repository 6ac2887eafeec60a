"""Failures of `leasehold export` and `import`: clear errors, and nothing half written, on disk or in the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from tests.journal.test_snapshot_file import index_with

from leasehold.coord.connect import connect
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.journal.snapshot_file import SnapshotTaker
from leasehold.node import preflight
from leasehold.node.index_files import whole_index
from leasehold.node.worker.snapshot_files import seal
from leasehold.testing.node import NodeGroup
from leasehold.testing.store import StoreProcess


def leasehold(*words: str, full_after_kib: int | None = None) -> tuple[int, str]:
    command = [sys.executable, "-m", "leasehold", *words]
    if full_after_kib is not None:  # no file may grow beyond, as on a full disk
        command = ["bash", "-c", f'ulimit -f {full_after_kib}; exec "$@"', "-", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, done.stdout + done.stderr


def an_index() -> Index:
    return Index(IndexSettings(), lambda _: 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "index.lsx"
    file.write_bytes(whole_index(an_index(), "moved", lambda: None))
    return file


class Target:
    """Target of an import: its own prefix in the store, and a directory that does not exist yet."""

    def __init__(self, store: StoreProcess, folder: Path) -> None:
        self.url = store.url
        self.prefix = f"/moving/{uuid4().hex}"
        self.data_dir = folder / "deep" / "data"

    def words(self, file: Path, cluster: str = "moved") -> list[str]:
        where = ["--coord", self.url, "--cluster", cluster, "--prefix", self.prefix]
        return ["import", *where, "--data-dir", str(self.data_dir), str(file)]

    async def keys(self) -> int:
        async with await connect(self.url) as coord:
            return (await coord.get(self.prefix.encode(), (self.prefix + "0").encode(), count_only=True)).count


@pytest.fixture
def target(served_store: StoreProcess, tmp_path: Path) -> Target:
    return Target(served_store, tmp_path)


def _newer() -> bytes:
    index = an_index()
    index.features.switch(99, 1)
    taker = SnapshotTaker(index, "moved")
    raw = taker.slice() + taker.keyless()
    return raw + seal(raw)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "the file is truncated, or not an export; export it again"),
        (lambda data: b"PK\3\4 something else", "the file is truncated, or not an export; export it again"),
        (lambda data: data[:-100], "the file is truncated, or not an export; export it again"),
        (lambda data: data[:50] + b"!" + data[51:], "the file is damaged: its checksum does not match"),
        (lambda data: _newer(), "feature level 99; this release reads up to version 2"),
    ],
)
async def test_an_invalid_file_is_rejected(damage: object, message: str, file: Path, target: Target) -> None:
    assert callable(damage)
    file.write_bytes(damage(file.read_bytes()))
    code, output = leasehold(*target.words(file))
    assert code == 1
    assert message in output
    assert len(output.splitlines()) == 1, output
    assert not target.data_dir.parent.exists()
    assert await target.keys() == 0


async def test_the_index_of_another_cluster_is_rejected(file: Path, target: Target) -> None:
    code, output = leasehold(*target.words(file, cluster="ours"))
    assert (code, output) == (1, "leasehold: the file is an index of cluster 'moved'; write --cluster moved\n")
    assert await target.keys() == 0


async def test_a_full_disk_leaves_nothing_and_a_second_attempt_works(file: Path, target: Target) -> None:
    """The cluster used to be claimed before the snapshot was written, which made it unusable after a failure."""
    file.write_bytes(whole_index(index_with(300), "moved", lambda: None))
    for full_after_kib in (0, 1):
        code, output = leasehold(*target.words(file), full_after_kib=full_after_kib)
        assert code == 1
        assert "is not writable (File too large): free some space, or give" in output
        assert not target.data_dir.parent.exists()
        assert await target.keys() == 0
    code, output = leasehold(*target.words(file))
    assert code == 0, output
    assert [path.name for path in target.data_dir.rglob("*.*")] == ["snapshot-000000000001.lsnap"]
    code, output = leasehold(*target.words(file))
    not_empty = "is not empty (it contains 'snapshot-000000000001.lsnap'); give a new directory"
    assert (code, not_empty in output) == (1, True), output
    target.data_dir = target.data_dir.with_name("other")
    code, output = leasehold(*target.words(file))
    assert (code, "is in use in this store (1 keys): choose another --cluster" in output) == (1, True), output
    assert not target.data_dir.exists()


async def test_a_directory_of_a_running_node_or_with_other_files_is_rejected(file: Path, target: Target) -> None:
    with preflight.lock_directory(target.data_dir):
        code, output = leasehold(*target.words(file))
        assert (code, "another node (pid" in output) == (1, True), output
    (target.data_dir / "notes.txt").write_text("mine")
    code, output = leasehold(*target.words(file))
    assert (code, "is not empty (it contains 'notes.txt')" in output) == (1, True), output
    target.data_dir = Path("/proc/nowhere")
    code, output = leasehold(*target.words(file))
    assert (code, "data_dir = '/proc/nowhere' is not writable" in output) == (1, True), output
    assert await target.keys() == 0


def test_an_unwritable_target_is_reported_before_a_node_is_contacted(tmp_path: Path) -> None:
    code, output = leasehold("export", "--admin", "127.0.0.1:1", str(tmp_path / "nowhere" / "out.lsx"))
    assert (code, "out.lsx' (No such file or directory)" in output) == (1, True), output


def test_an_export_onto_a_full_disk_leaves_the_old_file(served_store: StoreProcess, tmp_path: Path) -> None:
    with NodeGroup(served_store.url, 1, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path / "nodes") as nodes:
        out = tmp_path / "out.lsx"
        out.write_bytes(b"of yesterday")
        words = ["export", "--admin", nodes.nodes[0].admin, str(out)]
        code, output = leasehold(*words, full_after_kib=0)
        assert (code, "out.lsx' (File too large): free some space" in output) == (1, True), output
        assert out.read_bytes() == b"of yesterday"
        assert [path.name for path in tmp_path.glob("out*")] == ["out.lsx"]
        code, output = leasehold(*words)
        while "made an export a moment ago" in output:  # a primary without a standby pauses between two exports
            code, output = leasehold(*words)
        assert code == 0, output
        assert out.read_bytes() != b"of yesterday"
