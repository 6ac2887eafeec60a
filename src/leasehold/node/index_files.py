"""Index files: exported from a running node, and imported into an empty cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from leasehold.base.errors import CallerError
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.ha.keys import Keys, pack
from leasehold.ha.node_values import TruncationPoint
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.journal.snapshot_file import ForeignSnapshot, SnapshotTaker, UnreadableSnapshot, load_snapshot
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Put, prefix_end
from leasehold.node import preflight
from leasehold.node.worker.snapshot_files import seal, sealed_length, sync_folder, unseal


class NotImportable(CallerError):
    """The file cannot be imported, or its target is not empty; the message states what to do."""


class Imported(Struct, frozen=True):
    objects: int
    n: int


def whole_index(index: Index, cluster: str, beat: Callable[[], None]) -> bytes:
    """The index as one file. Nothing else runs meanwhile, so `beat` (the heartbeat) is called between slices."""
    taker = SnapshotTaker(index, cluster)
    parts = []
    while not taker.sliced:
        parts.append(taker.slice())
        beat()
    while part := taker.quarantined():
        parts.append(part)
        beat()
    parts.append(taker.keyless())
    raw = b"".join(parts)
    return raw + seal(raw)


async def import_file(data: bytes, url: str, cluster: str, prefix: str, data_dir: Path) -> Imported:
    """Check the file, claim the empty cluster by writing its truncation point, and store the snapshot for the node.

    The snapshot is on disk before the cluster is claimed, and gets its final name afterwards. If a step before that
    fails, everything is removed again.
    """
    return await store_index(_read(data, cluster), url, cluster, prefix, data_dir)


async def store_index(
    index: Index, url: str, cluster: str, prefix: str, data_dir: Path, more: tuple[Put, ...] = ()
) -> Imported:
    """The same for an index in memory; `more` is written together with the truncation point."""
    with _new_directory(data_dir) as folder:
        part = folder / "import.part"
        _write_durably(part, whole_index(index, cluster, lambda: None))
        async with await connect(url) as coord:
            await _claim(coord, Keys(cluster, prefix), index.log.last_n, more)
            part.rename(folder / "snapshot-000000000001.lsnap")
        sync_folder(folder)
    return Imported(index.catalog.object_count, index.log.last_n)


def _read(data: bytes, cluster: str) -> Index:
    raw = unseal(data)
    if raw is None:
        cut_off = sealed_length(data) is None
        what = "is truncated, or not an export" if cut_off else "is damaged: its checksum does not match"
        raise NotImportable(f"the file {what}; export it again")
    try:
        loaded = load_snapshot(raw, cluster)
    except ForeignSnapshot as error:
        raise NotImportable(
            f"the file is an index of cluster {error.cluster!r}; write --cluster {error.cluster}"
        ) from None
    except UnreadableSnapshot as error:
        raise NotImportable(
            f"the file cannot be read: {error}; export it again, or import it with the release that wrote it"
        ) from None
    index = Index(IndexSettings(), lambda choices: 0)
    index.load(loaded.keyless, loaded.parts)
    index.log.begin_epoch(0)  # epochs are revisions of a store, and the target is another store
    return index


@contextmanager
def _new_directory(data_dir: Path) -> Iterator[Path]:
    """The snapshot folder in an unused directory; on failure, removes everything that was created."""
    made = [folder for folder in (data_dir, *data_dir.parents) if not folder.exists()]
    left = [path for path in data_dir.rglob("*") if path.name != "lock" and not path.is_dir()]
    if left:
        raise NotImportable(f"'{data_dir}' is not empty (it contains '{left[0].name}'); give a new directory")
    folder = data_dir / "snapshots"
    try:
        with preflight.lock_directory(data_dir):
            folder.mkdir(exist_ok=True)
            yield folder
    except BaseException:  # also for a signal
        (folder / "import.part").unlink(missing_ok=True)
        if made:  # otherwise the lock may belong to another process
            (data_dir / "lock").unlink(missing_ok=True)
        for path in (folder, *made):
            with suppress(OSError):  # not empty, or not created
                path.rmdir()
        raise


def _write_durably(path: Path, data: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NotImportable(
            f"'{path.parent}' is not writable ({error.strerror}): free some space, or give another directory"
        ) from None


async def _claim(coord: Coord, keys: Keys, n: int, more: tuple[Put, ...]) -> None:
    """Write the truncation point: nodes that start without the snapshot see that they need it, and copy it."""
    found = await coord.get(keys.root, prefix_end(keys.root), count_only=True)
    if found.count:
        raise NotImportable(
            f"the prefix '{keys.root.decode()}' is in use in this store ({found.count} keys): "
            "choose another --cluster or --prefix"
        )
    absent = Compare(keys.truncation, CompareTarget.CREATE, CompareResult.EQUAL, 0)
    puts = [Put(keys.truncation, pack(TruncationPoint(n, 0))), *more]
    if not (await coord.txn([absent], puts)).succeeded:
        raise NotImportable(
            f"another process has just started to use the prefix '{keys.root.decode()}' in this store: "
            "choose another --cluster or --prefix"
        )
