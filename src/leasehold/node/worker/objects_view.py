"""Objects and storage hosts of a running node, for operators. An index may be large: every walk is in short steps."""

from __future__ import annotations

import asyncio
from typing import Final

from leasehold.admin.objects import (
    HostLine,
    HostPage,
    ObjectDetails,
    ObjectLine,
    ObjectPage,
    ObjectStory,
    ReplicaPlace,
    StoryLine,
)
from leasehold.admin.status import Operated
from leasehold.base.codes import Code
from leasehold.base.errors import Refused, Unavailable
from leasehold.base.text import printable
from leasehold.base.units import format_duration_ms
from leasehold.ha.keys import Keys
from leasehold.index.index import Index
from leasehold.index.model import COMPLETE, Object, Segment
from leasehold.index.records import Record
from leasehold.index.replies import View
from leasehold.journal.batch import UnreadableBatch, decode_explicit, decode_unlogged
from leasehold.journal.story import KeyStory, may_concern
from leasehold.mvcc.model import SortOrder, prefix_end
from leasehold.node.service import commands
from leasehold.node.worker.mooncake_numbers import used_bytes
from leasehold.node.worker.run import RunningNode
from leasehold.wire.messages import DEFAULT_TENANT

STEP_OBJECTS: Final = 2_000  # looked at between two turns of the loop: about a millisecond
PAGE_LOOKED_MAX: Final = 200_000  # looked at for one page; a longer search continues with the next page
STORY_BATCHES_MAX: Final = 5_000  # the newest batches of the journal that a story is made of
STORY_PAGE: Final = 32
STORY_TIMEOUT_S: Final = 10.0
DURABLE_POLL_S: Final = 0.002
DURABLE_TIMEOUT_S: Final = 5.0
_ALL_TABLES: Final = 16_384


class ObjectsView:
    """Implements `admin.objects.ObjectsFace`."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        settings = node.config.node
        self._keys = Keys(settings.cluster, settings.prefix)
        self._telling = asyncio.Semaphore(1)  # a story reads and decodes much

    # --- objects ---

    async def list_objects(self, tenant: str, prefix: str, after: str, limit: int) -> ObjectPage:
        self._require_leadership()
        name, start = tenant.encode() or DEFAULT_TENANT, prefix.encode()
        at, last = _cursor(after)
        found: list[ObjectLine] = []
        looked = paused = 0
        catalog = self._node.machine.index.catalog
        while (tables := catalog.tables.get(name)) is not None and at < _ALL_TABLES:
            table = tables[at]
            looked += 1 + len(table)
            for key in sorted(key for key in table if key.startswith(start) and (last is None or key > last)):
                line = self._node.machine.serving.execute(_line, name, key).value
                if line is None:
                    continue
                found.append(line)
                if len(found) == limit:
                    return await self._page(found, f"{at}:{key.hex()}")
            at, last = at + 1, None
            if looked >= PAGE_LOOKED_MAX:
                return await self._page(found, f"{at}:")
            if looked - paused >= STEP_OBJECTS:
                paused = looked
                await asyncio.sleep(0)
                self._require_leadership()
                catalog = self._node.machine.index.catalog
        return await self._page(found, "")

    async def _page(self, found: list[ObjectLine], after: str) -> ObjectPage:
        await self._durable(self._node.machine.index.log.last_n)
        return ObjectPage(tuple(found), after)

    async def show_object(self, tenant: str, key: str) -> ObjectDetails | None:
        self._require_leadership()
        reply = self._node.machine.serving.execute(_details, tenant.encode() or DEFAULT_TENANT, key.encode())
        await self._durable(reply.after)
        return reply.value

    async def story(self, tenant: str, key: str) -> ObjectStory:
        if self._telling.locked():
            raise Unavailable("this node reads the journal for another caller: try again")
        async with self._telling:
            try:
                async with asyncio.timeout(STORY_TIMEOUT_S):
                    return await self._story(tenant.encode() or DEFAULT_TENANT, key.encode())
            except TimeoutError:
                raise Unavailable(f"the journal could not be read within {STORY_TIMEOUT_S:g} s") from None

    async def _story(self, tenant: bytes, key: bytes) -> ObjectStory:
        """Read the newest batches, the newest first, and tell them in their order."""
        coord, keys = self._node.coord, self._keys
        kept: list[tuple[int, int, Record]] = []
        end, first_n, batches = keys.explicit_end, 0, 0
        while batches < STORY_BATCHES_MAX:
            page = await coord.get(keys.explicit, end, limit=STORY_PAGE, sort_order=SortOrder.DESCEND)
            for kv in page.kvs:
                try:
                    batch = decode_explicit(kv.value)
                except UnreadableBatch:
                    continue
                numbered = [(batch.first_n + at, record) for at, record in enumerate(batch.records)]
                kept += [(n, batch.wall_us, each) for n, each in reversed(numbered) if may_concern(each, tenant, key)]
                first_n = batch.first_n
            batches += len(page.kvs)
            if not page.more or not page.kvs:
                break
            end = page.kvs[-1].key
            await asyncio.sleep(0)
        reported = KeyStory(tenant, key)
        for n, wall_us, record in reversed(kept):
            reported.add(n, wall_us, record)
        present = self._node.machine.index.catalog.lookup(tenant, key) is not None
        hinted = not present and await self._hinted(tenant, key)
        lines = tuple(StoryLine(n, wall_us, text) for n, wall_us, text in reported.lines)
        return ObjectStory(lines, reported.conclusion(present=present, hinted=hinted, first_n=first_n), first_n)

    async def _hinted(self, tenant: bytes, key: bytes) -> bool:
        """Whether an eviction of this key is among the hints of the last minute."""
        found = await self._node.coord.get(
            self._keys.unlogged, prefix_end(self._keys.unlogged), limit=STORY_BATCHES_MAX
        )
        for kv in found.kvs:
            try:
                hints = decode_unlogged(kv.value).hints
            except UnreadableBatch:
                continue
            if any((hint.tenant, hint.key) == (tenant, key) for hint in hints):
                return True
            await asyncio.sleep(0)
        return False

    # --- storage hosts ---

    async def list_hosts(self, after: str, limit: int) -> HostPage:
        self._require_leadership()
        start = int(after) if after.isdecimal() else 0
        index = self._node.machine.index
        chosen = [each for each in index.space.segments.values() if each.incarnation > start][: limit + 1]
        reply = self._node.machine.serving.execute(_hosts, chosen[:limit])
        await self._durable(index.log.last_n)
        more = str(chosen[limit - 1].incarnation) if len(chosen) > limit else ""
        return HostPage(tuple(reply.value), more)

    async def remove_host(self, name: str, force: bool) -> Operated:
        self._require_leadership()
        index, serving = self._node.machine.index, self._node.machine.serving
        segments = index.space.segments.by_name.get(name)
        if not segments:
            return Operated(False, f"no segment is named '{printable(name)}': see `leasehold hosts list`")
        used = [each for each in segments if used_bytes(each) and not index.drains.is_emptied(each)]
        if used and not force:
            return Operated(
                False,
                f"'{printable(name)}' still has objects: type `leasehold hosts drain {printable(name)}` first, or lose "
                "the objects that are only there with --force",
            )
        for segment in segments:
            reply = serving.execute(commands.unmount, segment.client, segment.spec.id)
            if reply.code != Code.OK:
                return Operated(False, f"'{printable(name)}' cannot be unmounted: {reply.code.name}")
            await self._durable(reply.after)
        return Operated(True, f"unmounted {len(segments)} segment of '{printable(name)}': stop its process now")

    # --- leadership ---

    def _require_leadership(self) -> None:
        if not self._node.machine.serving.may_serve(self._node.clock.now_ms()):
            raise Unavailable("this node does not lead, and only the leader knows leases and hosts: ask the leader")

    async def _durable(self, n: int) -> None:
        """Wait until record `n` is durable: an answer must not show what a failover would undo (P1)."""
        try:
            async with asyncio.timeout(DURABLE_TIMEOUT_S):
                while self._node.machine.outbox.acked_n < n:
                    self._require_leadership()
                    await asyncio.sleep(DURABLE_POLL_S)
        except TimeoutError:
            raise Unavailable("the journal did not become durable in time: try again") from None
        self._require_leadership()


def _cursor(after: str) -> tuple[int, bytes | None]:
    """The table and the last key that were listed."""
    table, _, key = after.partition(":")
    try:
        return (int(table), bytes.fromhex(key) if key else None) if after else (0, None)
    except ValueError:
        raise Refused(f"after = {printable(after, 100)!r} is not the `next` of a page") from None


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _left_ms(end: int, now: int) -> int:
    return max(0, end - now)


def _line(index: Index, now_ms: int, tenant: bytes, key: bytes) -> View[ObjectLine | None]:
    entry = index.catalog.lookup(tenant, key)
    if entry is None:
        return View(None, 0)
    now = now_ms + index.clock.offset
    pin = "hard" if entry.hard_pin else "soft" if entry.soft_pin_end > now else ""
    lease_ms = _left_ms(index.leases.end_of(entry), now)
    return View(ObjectLine(_text(key), entry.size, entry.replica_count, entry.visible, lease_ms, pin), 0)


def _details(index: Index, now_ms: int, tenant: bytes, key: bytes) -> View[ObjectDetails | None]:
    entry = index.catalog.lookup(tenant, key)
    if entry is None:
        return View(None, index.log.last_n)
    now = now_ms + index.clock.offset
    lease_ms, pin_ms = _left_ms(index.leases.end_of(entry), now), _left_ms(entry.soft_pin_end, now)
    return View(
        ObjectDetails(
            key=_text(key),
            tenant=_text(tenant),
            size=entry.size,
            state=_state(index, entry),
            replicas=tuple(
                ReplicaPlace(
                    each.segment.spec.name,
                    each.segment.spec.endpoint,
                    each.address,
                    each.status == COMPLETE,
                    each.segment.proven,
                )
                for each in entry.replicas
            ),
            lease_left_ms=lease_ms,
            soft_pin_left_ms=pin_ms,
            hard_pin=entry.hard_pin,
            group=_text(entry.group),
            client=entry.client.hex(),
            put_n=entry.put_seq,
            changed_n=entry.changed_n,
            reasons=tuple(_reasons(index, entry, lease_ms, pin_ms)),
        ),
        index.log.last_n,
    )


def _state(index: Index, entry: Object) -> str:
    if entry.draft is not None:
        return "being written"
    return "being copied or replaced" if index.catalog.is_busy(entry) else "readable"


def _reasons(index: Index, entry: Object, lease_ms: int, pin_ms: int) -> list[str]:
    """Why it is still here."""
    found = []
    if entry.draft is not None:
        found.append("its put is not finished: the space belongs to the writer until it must have given up")
    if entry.hard_pin:
        found.append("a hard pin keeps it until it is removed")
    if lease_ms:
        found.append(
            f"a lease protects it for {format_duration_ms(lease_ms)}: it was read, or a failover gave it grace"
        )
    if pin_ms:
        found.append(f"a soft pin keeps it for {format_duration_ms(pin_ms)}, unless there is no other way to get space")
    if not found:
        used = index.space.used_bytes / max(1, index.space.total_bytes)
        found.append(f"nothing protects it: it stays until space is needed ({used:.0%} of the pool is used)")
    return found


def _hosts(index: Index, now_ms: int, segments: list[Segment]) -> View[list[HostLine]]:
    now = now_ms + index.clock.offset
    lines = []
    for segment in segments:
        spec, client = segment.spec, index.owners.clients.get(segment.client)
        pinged_ms = now - client.seen if client is not None else -1
        lines.append(
            HostLine(
                spec.name, spec.endpoint, spec.protocol, segment.client.hex(), spec.size, used_bytes(segment),
                _host_state(index, segment), pinged_ms,
            )
        )  # fmt: skip
    return View(lines, 0)


def _host_state(index: Index, segment: Segment) -> str:
    if index.drains.is_emptied(segment):
        return "drained"
    if segment.draining:
        return "draining"
    if segment.drain_end:
        return "unmounting"
    return "mounted" if segment.proven else "waits for its first ping"
