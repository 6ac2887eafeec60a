"""Index files: made from a running node, and planted in an empty cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from leasehold.base.errors import CallerError
from leasehold.coord.connect import connect
from leasehold.ha.keys import Keys, pack
from leasehold.ha.registry import FloorValue
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.journal.snapshot import SnapshotTaker, load_snapshot
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Put, prefix_end
from leasehold.node.snapshots import seal, unseal


class NotImportable(CallerError):
    """The file, or the place where it is to go, does not fit; the message says what to do."""


class Imported(Struct, frozen=True):
    objects: int
    n: int


def whole_index(index: Index, cluster: str, beat: Callable[[], None]) -> bytes:
    """The index as one file, as of one moment: nothing else runs meanwhile. `beat` is called between slices."""
    taker = SnapshotTaker(index, cluster)
    parts = []
    while not taker.sliced:
        parts.append(taker.slice())
        beat()
    parts.append(taker.keyless())
    raw = b"".join(parts)
    return raw + seal(raw)


async def import_file(data: bytes, url: str, cluster: str, prefix: str, data_dir: Path) -> Imported:
    """Check the file, claim the empty cluster by its floor, and put the snapshot where the node will find it."""
    raw = unseal(data)
    if raw is None:
        raise NotImportable("the file is damaged or not an export of ours: export it again")
    loaded = load_snapshot(raw, cluster)
    index = Index(IndexSettings(), lambda choices: 0)
    index.load(loaded.keyless, loaded.slices)
    index.epoch = 0  # epochs are revisions of a store, and this is another store: the first one here comes after it
    keys = Keys(cluster, prefix)
    async with await connect(url) as coord:
        found = await coord.get(keys.root, prefix_end(keys.root), count_only=True)
        if found.count:
            raise NotImportable(f"{keys.root.decode()} is in use in this store ({found.count} keys): name another")
        # Nodes that begin without the snapshot see by the floor that they need it, and get it from a peer.
        absent = Compare(keys.floor, CompareTarget.CREATE, CompareResult.EQUAL, 0)
        await coord.txn([absent], [Put(keys.floor, pack(FloorValue(index.last_n, 0)))])
    folder = data_dir / "snapshots"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "snapshot-000000000001.lsnap").write_bytes(whole_index(index, cluster, lambda: None))
    return Imported(index.object_count, index.last_n)
