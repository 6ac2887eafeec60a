"""Versions to be read back into memory: which are hit often, and which were handed out. Of a leader, not recorded."""

from __future__ import annotations

from leasehold.base.limits import promotion_counted_keys_max
from leasehold.index.disk import DiskTier
from leasehold.index.model import Object
from leasehold.index.settings import IndexSettings
from leasehold.index.space.space import Space
from leasehold.index.tables import Name


class Promotions:
    """Queues of versions for each disk owner, as readers hit them. After a failover they fill again.

    Invariant: `in_flight` counts what is queued or handed out.
    """

    __slots__ = (
        "_disk", "_high_watermark", "_hits", "_on", "_per_heartbeat", "_queue_max", "_space", "_threshold",
        "handed_out", "queues",
    )  # fmt: skip

    def __init__(self, settings: IndexSettings, space: Space, disk: DiskTier) -> None:
        self._space = space
        self._disk = disk
        self._on = settings.enable_offload and settings.promotion_on_hit
        self._threshold = settings.promotion_threshold
        self._queue_max = settings.promotion_queue_max
        self._per_heartbeat = settings.promotions_per_heartbeat
        self._high_watermark = settings.eviction_high_watermark
        self._hits: dict[Name, int] = {}  # reads of versions that are only on disk
        self.queues: dict[bytes, dict[Name, int]] = {}  # by client: sizes
        self.handed_out: dict[Name, tuple[bytes, int]] = {}  # client, put number of the version

    @property
    def in_flight(self) -> int:
        return sum(len(queue) for queue in self.queues.values()) + len(self.handed_out)

    def hit(self, row: Object) -> None:
        """A reader was sent to a disk: there is no memory replica."""
        if not self._on:
            return
        name = (row.tenant, row.key)
        hits = self._hits
        count = hits[name] = hits.pop(name, 0) + 1  # the last hit is last
        if len(hits) > promotion_counted_keys_max:
            del hits[next(iter(hits))]
        space = self._space
        if count < self._threshold or space.used_bytes >= self._high_watermark * space.total_bytes:
            return
        version = self._disk.find(*name)
        if version is None or version.promotion or name in self.handed_out or self.in_flight >= self._queue_max:
            return
        holder = next((r.owner for r in self._disk.beside(row)), None)
        if holder is not None:
            self.queues.setdefault(holder, {})[name] = row.size
            hits.pop(name, None)

    def hand_out(self, client: bytes) -> list[tuple[Name, int]]:
        """The next versions for a client to read into memory."""
        queue = self.queues.get(client)
        found: list[tuple[Name, int]] = []
        while queue and len(found) < self._per_heartbeat:
            name, size = next(iter(queue.items()))
            del queue[name]
            version = self._disk.readable(*name)
            if version is not None and not self._disk.is_in_memory(version.row):
                self.handed_out[name] = (client, version.row.put_seq)
                found.append((name, size))
        return found

    def ended(self, name: Name) -> None:
        """The client has written it, or has given up."""
        self.handed_out.pop(name, None)

    def close(self, client: bytes) -> None:
        """A client's disk cannot be used any more."""
        self.queues.pop(client, None)
        for name in [name for name, (holder, _) in self.handed_out.items() if holder == client]:
            del self.handed_out[name]

    def clear(self) -> None:
        """An epoch begins."""
        self._hits.clear()
        self.queues.clear()
        self.handed_out.clear()
