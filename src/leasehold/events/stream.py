"""The publisher's decisions: which message is published when, and what a subscriber that missed some is sent. Pure.

Laws:
- A message leaves only when every record that it shows is durable, and after all earlier ones.
- Messages of an epoch are counted from 1 without gaps. The first one names the fingerprint of the new leader's objects:
  a subscriber whose picture has another one loads it again.
- Changes that were dropped (overflow) are followed by a message that requires a reload, as soon as the dropped ones are
  durable: a page that is loaded earlier would lack them, and no later message would have them.
"""

from __future__ import annotations

from collections import deque
from zlib import crc32

from msgspec import Struct

from leasehold.events.messages import Encoder, Message, Reload
from leasehold.index.catalog import Catalog
from leasehold.index.changes import Changes, with_version, without_version
from leasehold.index.disk import DiskTier
from leasehold.index.tables import NO_TABLES, TABLES

_MESSAGE_EVENTS_MAX = 64  # as Mooncake's publisher
_RESUMED_MESSAGES_MAX = 256
_PAGE_OBJECTS = 1_000
_PAGE_TABLES_MAX = 4_096

Cursor = tuple[bytes, int]  # tenant, number of the table


class Resumed(Struct, frozen=True, tag="resumed"):
    """The messages that a subscriber missed, or the first of them. The rest is that of its picture, if it has all."""

    epoch: int
    count: int  # of the last published message
    messages: list[Message]
    fingerprint: int
    objects: int


class MustReload(Struct, frozen=True, tag="reload"):
    """The missed messages are no longer known. Only a picture with this fingerprint is right."""

    epoch: int
    count: int
    reason: str
    fingerprint: int
    objects: int


class Page(Struct, frozen=True, tag="page"):
    """Some objects, as of message `count`. Later messages win over it."""

    epoch: int
    count: int
    start: Cursor | None  # as requested
    objects: list[tuple[bytes, bytes, int]]  # tenant, key, put number
    next: Cursor | None


Answer = Resumed | MustReload | Page


class EventStream:
    """The stream of one node. It publishes while the node leads."""

    __slots__ = (
        "_buffer", "_bytes", "_bytes_max", "_encoder", "_messages_max", "count", "epoch", "fingerprint", "objects",
        "published_events", "reloads",
    )  # fmt: skip

    def __init__(self, encoder: Encoder, messages_max: int, bytes_max: int) -> None:
        """`messages_max`, `bytes_max`: bounds of the buffer from which subscribers resume."""
        self._encoder = encoder
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self._buffer: deque[Message] = deque()
        self._bytes = 0
        self.epoch = 0  # 0: this node does not lead
        self.count = 0
        self.fingerprint = 0  # of the objects as published
        self.objects = 0
        self.published_events = 0
        self.reloads = 0

    @property
    def skipped_keys(self) -> int:
        """Keys that are no hash."""
        return self._encoder.skipped

    def begin(self, wall_ms: int, epoch: int, changes: Changes) -> Message:
        """This node leads, and has decided nothing yet."""
        changes.record(True)
        self._buffer.clear()
        self._bytes = 0
        self.epoch, self.count = epoch, 0
        return self._reload(wall_ms, changes, "another node leads")

    def end(self, changes: Changes) -> None:
        """This node no longer leads."""
        changes.record(False)
        self.epoch = 0

    def publish(self, wall_ms: int, durable_n: int, changes: Changes) -> list[Message]:
        """The messages to send now. Each subscriber gets them or misses them: nothing is waited for."""
        messages: list[Message] = []
        if self.epoch == 0:
            return messages
        if changes.dropped_n:
            if durable_n < changes.dropped_n:
                return messages
            changes.forget_dropped()
            messages.append(self._reload(wall_ms, changes, "events were dropped"))
        while taken := changes.take(durable_n, _MESSAGE_EVENTS_MAX):
            for change in taken:
                update = with_version if change.stored else without_version
                self.fingerprint = update(self.fingerprint, change.put_seq)
                self.objects += 1 if change.stored else -1
            self.published_events += len(taken)
            messages.append(self._keep(self._encoder.changes(wall_ms, self.epoch, self.count + 1, taken)))
        return messages

    def _reload(self, wall_ms: int, changes: Changes, reason: str) -> Message:
        self.fingerprint, self.objects = changes.published()
        self.reloads += 1
        reload = Reload(reason, self.fingerprint, self.objects)
        return self._keep(self._encoder.reload(wall_ms, self.epoch, self.count + 1, reload))

    def _keep(self, message: Message) -> Message:
        self.count = message.count
        self._buffer.append(message)
        self._bytes += len(message.payload)
        while len(self._buffer) > self._messages_max or self._bytes > self._bytes_max:
            self._bytes -= len(self._buffer.popleft().payload)
        return message

    def resume(self, epoch: int, count: int) -> Resumed | MustReload:
        """For a subscriber whose last message was this one."""
        if epoch != self.epoch or count > self.count:
            return self._must_reload("another node leads")
        first = self._buffer[0].count if self._buffer else self.count + 1
        if count + 1 < first:
            return self._must_reload("the missed events are no longer buffered")
        missed = [message for message in self._buffer if message.count > count][:_RESUMED_MESSAGES_MAX]
        return Resumed(self.epoch, self.count, missed, self.fingerprint, self.objects)

    def _must_reload(self, reason: str) -> MustReload:
        return MustReload(self.epoch, self.count, reason, self.fingerprint, self.objects)

    def page(self, catalog: Catalog, disk: DiskTier, changes: Changes, cursor: Cursor | None) -> Page | MustReload:
        """Objects from this place on, as published: changes that wait to be published are left out."""
        if changes.dropped_n:
            return self._must_reload("events were dropped")
        unpublished = changes.unpublished()
        objects: list[tuple[bytes, bytes, int]] = []
        leaving: dict[tuple[bytes, int], list[tuple[bytes, bytes, int]]] = {}
        for change in unpublished.values():
            if not change.stored:
                place = (change.tenant, crc32(change.key) & 16383)
                leaving.setdefault(place, []).append((change.tenant, change.key, change.put_seq))
        known = {*catalog.tables, *disk.tenants, *(tenant for tenant, _ in leaving)}
        tenants = sorted(tenant for tenant in known if cursor is None or tenant >= cursor[0])
        looked = 0
        for tenant in tenants:
            start = cursor[1] if cursor is not None and tenant == cursor[0] else 0
            for number in range(start, TABLES):
                if len(objects) >= _PAGE_OBJECTS or looked >= _PAGE_TABLES_MAX:
                    return Page(self.epoch, self.count, cursor, objects, (tenant, number))
                looked += 1
                objects += leaving.get((tenant, number), ())
                objects += [
                    (tenant, entry.key, entry.put_seq)
                    for entry in list(catalog.tables.get(tenant, NO_TABLES)[number].values())
                    if entry.visible and entry.put_seq not in unpublished and catalog.settle(entry)
                ]
                objects += [
                    (tenant, row.key, row.put_seq)
                    for version in disk.on_shelves(number, number + 1)
                    if (row := version.row).tenant == tenant
                    and row.put_seq not in unpublished
                    and not disk.is_in_memory(row)
                    and disk.is_readable(version)
                ]
        return Page(self.epoch, self.count, cursor, objects, None)
