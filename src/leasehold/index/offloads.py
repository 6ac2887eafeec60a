"""Objects to be written to disks: what waits, and what was handed out. Of a leader, and not recorded."""

from __future__ import annotations

from msgspec import Struct

from leasehold.base.limits import offload_handed_out_max, offload_retries_max
from leasehold.index.catalog import Catalog
from leasehold.index.disk import DiskTier
from leasehold.index.model import Object
from leasehold.index.settings import IndexSettings
from leasehold.index.tables import Name


class Offload(Struct, frozen=True, gc=False):
    """A version that a storage client is to write to its disk, from a replica in its own memory."""

    put_seq: int
    replica: int
    size: int
    tries: int = 0
    since: int = 0  # internal time: handed out then


class Offloads:
    """The queues of objects for each disk owner.

    A notice of success carries no version. So a version is handed out to a client only if no other version of that key
    is: the notice is then about exactly that one. An object that was handed out is not evicted until the notice, or
    until the writer must have given up: the client reads the bytes from memory.

    After a failover the queues are empty. Objects that are not on disk are queued again when they are put or evicted.

    Invariant: `pinned` holds the put numbers of what is handed out.
    """

    __slots__ = (
        "_by_eviction", "_by_put", "_catalog", "_disk", "_force", "_give_up_ms", "_queue_max", "handed_out", "pinned",
        "refused_full", "waiting",
    )  # fmt: skip

    def __init__(self, settings: IndexSettings, catalog: Catalog, disk: DiskTier) -> None:
        self._catalog = catalog
        self._disk = disk
        self._by_eviction = settings.enable_offload and settings.offload_on_evict
        self._by_put = settings.enable_offload and not settings.offload_on_evict
        self._force = settings.offload_force_evict
        self._queue_max = settings.offload_queue_max
        self._give_up_ms = settings.put_release_ms
        self.waiting: dict[bytes, dict[Name, Offload]] = {}  # by client
        self.handed_out: dict[bytes, dict[Name, Offload]] = {}
        self.pinned: dict[int, int] = {}  # by put number: when it was handed out, in internal time
        self.refused_full = 0  # objects that did not fit into a queue

    # --- what is to be written ---

    def finished(self, entry: Object) -> None:
        """A put is complete: each replica's owner is to write it to its disk."""
        if self._by_put and entry.visible:
            self._queue(entry)

    def keeps(self, entry: Object, now: int) -> bool:
        """Whether an object must not be evicted yet. One that is not on disk is queued, if eviction writes to disk."""
        if entry.put_seq in self.pinned:
            return now - self.pinned[entry.put_seq] < self._give_up_ms
        if not self._by_eviction or self._disk.keeps(entry):
            return False
        return self._queue(entry) and not self._force

    def _queue(self, entry: Object) -> bool:
        """Queue an object. Returns whether an owner has it in its queue."""
        name = (entry.tenant, entry.key)
        queued = False
        for replica in entry.replicas:
            client = replica.segment.client
            owner = self._disk.owners.get(client)
            queue = self.waiting.get(client)
            if owner is None or not owner.connected or queue is None:
                continue
            if name not in queue and len(queue) >= self._queue_max:
                self.refused_full += 1
                continue
            known = queue.get(name)
            if known is None or known.put_seq != entry.put_seq:
                queue[name] = Offload(entry.put_seq, replica.id, entry.size)
            queued = True
        return queued

    # --- owners ---

    def open(self, client: bytes) -> None:
        """A client accepts objects."""
        self.waiting.setdefault(client, {})

    def close(self, client: bytes) -> None:
        """A client accepts none any more, or is silent."""
        self.waiting.pop(client, None)
        for offload in self.handed_out.pop(client, {}).values():
            self.pinned.pop(offload.put_seq, None)

    def clear(self) -> None:
        """An epoch begins."""
        self.waiting.clear()
        self.handed_out.clear()
        self.pinned.clear()

    def hand_out(self, client: bytes, now: int) -> list[tuple[Name, int]]:
        """The next objects for a client to write: names and sizes."""
        queue, out = self.waiting.get(client), self.handed_out.setdefault(client, {})
        for name, offload in list(out.items()):  # a writer that gave up: its notice is lost
            if now - offload.since >= self._give_up_ms:
                self._take_back(out, name)
        if not queue:
            return []
        found: list[tuple[Name, int]] = []
        kept: dict[Name, Offload] = {}
        for name in list(queue)[: offload_handed_out_max * 2]:
            offload = queue.pop(name)
            if not self.stands(name, offload):
                continue
            earlier = out.get(name)
            if len(found) >= offload_handed_out_max or (earlier is not None and earlier.put_seq != offload.put_seq):
                kept[name] = offload
                continue
            out[name] = Offload(offload.put_seq, offload.replica, offload.size, offload.tries, now)
            self.pinned[offload.put_seq] = now
            found.append((name, offload.size))
        queue.update(kept)
        return found

    def take_handed_out(self, client: bytes, name: Name) -> Offload | None:
        """The version of this key that the client was to write; it is no longer handed out."""
        return self._take_back(self.handed_out.get(client, {}), name)

    def _take_back(self, out: dict[Name, Offload], name: Name) -> Offload | None:
        offload = out.pop(name, None)
        if offload is not None:
            self.pinned.pop(offload.put_seq, None)
        return offload

    def try_again(self, client: bytes, name: Name, offload: Offload) -> None:
        """The client could not write it, for example because its file is not full yet."""
        queue = self.waiting.get(client)
        if self._by_put and queue is not None and offload.tries < offload_retries_max and self.stands(name, offload):
            queue.setdefault(name, Offload(offload.put_seq, offload.replica, offload.size, offload.tries + 1))

    def stands(self, name: Name, offload: Offload) -> bool:
        """Whether the version is still there, with the replica that the client reads."""
        entry = self._catalog.lookup(*name)
        return (
            entry is not None
            and entry.visible
            and entry.put_seq == offload.put_seq
            and any(replica.id == offload.replica for replica in entry.replicas)
        )

    @property
    def waiting_count(self) -> int:
        return sum(len(queue) for queue in self.waiting.values())
