"""`leasehold export` and `import` on a bad day: what is refused, and nothing half written, here or in the store."""

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
    """Where an import goes: a prefix of its own in the store, a directory that is not there yet."""

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
    taker = SnapshotTaker(an_index(), "moved", 9)
    raw = taker.slice() + taker.keyless()
    return raw + seal(raw)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: b"", "the file is cut off, or not an export of ours: export it again"),
        (lambda data: b"PK\3\4 something else", "the file is cut off, or not an export of ours: export it again"),
        (lambda data: data[:-100], "the file is cut off, or not an export of ours: export it again"),
        (lambda data: data[:50] + b"!" + data[51:], "the file is damaged: its checksum does not fit"),
        (lambda data: _newer(), "the snapshot has version 9; this release reads version 1; export it anew"),
    ],
)
async def test_a_file_that_is_no_good(spoil: object, says: str, file: Path, target: Target) -> None:
    assert callable(spoil)
    file.write_bytes(spoil(file.read_bytes()))
    code, said = leasehold(*target.words(file))
    assert code == 1
    assert says in said
    assert len(said.splitlines()) == 1, said
    assert not target.data_dir.parent.exists()
    assert await target.keys() == 0


async def test_another_clusters_index(file: Path, target: Target) -> None:
    code, said = leasehold(*target.words(file, cluster="ours"))
    assert (code, said) == (1, "leasehold: the file is an index of cluster 'moved': say --cluster moved\n")
    assert await target.keys() == 0


async def test_a_full_disk_leaves_nothing_and_a_second_try_works(file: Path, target: Target) -> None:
    """The cluster used to be claimed before the snapshot was written: nobody could begin with it any more."""
    file.write_bytes(whole_index(index_with(300), "moved", lambda: None))
    for full_after_kib in (0, 1):
        code, said = leasehold(*target.words(file), full_after_kib=full_after_kib)
        assert code == 1
        assert "cannot be written (File too large): make room, or name" in said
        assert not target.data_dir.parent.exists()
        assert await target.keys() == 0
    code, said = leasehold(*target.words(file))
    assert code == 0, said
    assert [path.name for path in target.data_dir.rglob("*.*")] == ["snapshot-000000000001.lsnap"]
    code, said = leasehold(*target.words(file))
    assert (code, "is not empty (it has snapshot-000000000001.lsnap): name a new directory" in said) == (1, True), said
    target.data_dir = target.data_dir.with_name("other")
    code, said = leasehold(*target.words(file))
    assert (code, "is in use in this store (1 keys): name another" in said) == (1, True), said
    assert not target.data_dir.exists()


async def test_a_directory_that_a_node_has_open_or_that_is_somebody_elses(file: Path, target: Target) -> None:
    with preflight.hold(target.data_dir):
        code, said = leasehold(*target.words(file))
        assert (code, "another node (pid" in said) == (1, True), said
    (target.data_dir / "notes.txt").write_text("mine")
    code, said = leasehold(*target.words(file))
    assert (code, "is not empty (it has notes.txt)" in said) == (1, True), said
    target.data_dir = Path("/proc/nowhere")
    code, said = leasehold(*target.words(file))
    assert (code, "data_dir = /proc/nowhere: cannot be written" in said) == (1, True), said
    assert await target.keys() == 0


def test_a_target_that_cannot_be_written_is_known_before_anything_is_asked(tmp_path: Path) -> None:
    code, said = leasehold("export", "--admin", "127.0.0.1:1", str(tmp_path / "nowhere" / "out.lsx"))
    assert (code, "out.lsx: cannot be written (No such file or directory)" in said) == (1, True), said


def test_an_export_onto_a_full_disk_leaves_what_was_there(served_store: StoreProcess, tmp_path: Path) -> None:
    with NodeGroup(served_store.url, 1, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path / "nodes") as nodes:
        out = tmp_path / "out.lsx"
        out.write_bytes(b"of yesterday")
        words = ["export", "--admin", nodes.nodes[0].admin, str(out)]
        code, said = leasehold(*words, full_after_kib=0)
        assert (code, "out.lsx: cannot be written (File too large): make room" in said) == (1, True), said
        assert out.read_bytes() == b"of yesterday"
        assert [path.name for path in tmp_path.glob("out*")] == ["out.lsx"]
        assert leasehold(*words)[0] == 0
        assert out.read_bytes() != b"of yesterday"
