"""Puts and upserts: start (space), end (readable), revoke (given back)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

from leasehold.base.codes import Code, ReplicaKind, SoftPin
from leasehold.base.limits import (
    batch_record_keys_max,
    group_bytes_max,
    key_bytes_max,
    object_bytes_max,
    preferred_segments_max,
    replicas_max,
    tenant_bytes_max,
    tenants_max,
)
from leasehold.index.catalog import Catalog
from leasehold.index.clock import LeaderClock
from leasehold.index.decisions import Decisions
from leasehold.index.disk import DiskTier
from leasehold.index.eviction import Eviction
from leasehold.index.features import LEVEL_OF, Features
from leasehold.index.leases import Leases
from leasehold.index.log import Log
from leasehold.index.model import Object, PutConfig
from leasehold.index.offloads import Offloads
from leasehold.index.placement import Placement
from leasehold.index.records import Cause, Extent, PutEnd, PutEnds, PutRevoke, PutStart
from leasehold.index.replies import Acknowledged, Answered, SpaceHandedOut
from leasehold.index.settings import IndexSettings
from leasehold.index.space.space import Space
from leasehold.index.tenants import Tenants

_OK = Code.OK  # a name of the module: looking a member up in its enumeration takes longer
_OUR_KINDS = (ReplicaKind.MEMORY, ReplicaKind.ALL)
Started = SpaceHandedOut[Object]
ManyStarted = SpaceHandedOut[list[Started]]
NewObject = tuple[bytes, int, PutConfig]  # key, size, config
Written = tuple[bytes, int | None]  # key, checksum


class Puts:
    """Commands about puts. An answer that hands out space waits for its record (P3, schedule 1)."""

    __slots__ = (
        "_catalog", "_clock", "_decisions", "_disk", "_eviction", "_features", "_good_config", "_lease_ms", "_leases",
        "_log", "_offloads", "_placement", "_settings", "_space", "_tenants",
    )  # fmt: skip

    def __init__(
        self,
        settings: IndexSettings,
        clock: LeaderClock,
        log: Log,
        features: Features,
        decisions: Decisions,
        space: Space,
        leases: Leases,
        catalog: Catalog,
        placement: Placement,
        eviction: Eviction,
        tenants: Tenants,
        disk: DiskTier,
        offloads: Offloads,
    ) -> None:
        self._disk = disk
        self._offloads = offloads if settings.enable_offload and not settings.offload_on_evict else None
        self._settings = settings
        self._tenants = tenants if settings.tenant_quotas else None
        self._lease_ms = settings.lease_ttl_ms if leases.expiry else 0  # granted by the end of a put
        self._clock = clock
        self._log = log
        self._features = features
        self._decisions = decisions
        self._space = space
        self._leases = leases
        self._catalog = catalog
        self._placement = placement
        self._eviction = eviction
        self._good_config: PutConfig | None = None  # the last one that was checked: most puts have the same one

    def start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig, request: int = 0
    ) -> Started:
        """Space for an object. A repeat with the same client and non-zero `request` gets the same answer."""
        bad = self._bad_put(tenant, key, size, config)
        if bad is not None:
            return SpaceHandedOut(bad, None, 0)
        now = now_ms + self._clock.offset
        catalog = self._catalog
        tables = catalog.tables.get(tenant)
        old = None if tables is None else tables[crc32(key) & 16383].get(key)
        if old is not None and (self._leases.expiry or catalog.ending):
            old = self._eviction.lookup_live(now, tenant, key)
        if self._disk.count and (old is None or old.draft is not None):
            row = self._disk.read(tenant, key)
            if row is not None:
                return SpaceHandedOut(Code.EXISTS, None, max(row.changed_n, self._log.range_n))
        if old is None:
            return self._start_fresh(now, client, tenant, key, size, config, request)
        if old.draft is None:
            return SpaceHandedOut(Code.EXISTS, None, max(old.changed_n, self._log.range_n))
        return self._start_over(now, client, old, size, config, request, Code.EXISTS)

    def start_upsert(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig, request: int = 0
    ) -> Started:
        """As `start`, but over an existing object.

        The new version is written beside the old one, which stays readable until the end. It is written in place only
        where space is short and no lease can be live.
        """
        bad = self._bad_put(tenant, key, size, config)
        if bad is not None:
            return SpaceHandedOut(bad, None, 0)
        now = now_ms + self._clock.offset
        old = self._eviction.lookup_live(now, tenant, key)
        if old is None:
            return self._start_fresh(now, client, tenant, key, size, config, request)
        unfinished = self._catalog.pending.get((tenant, key), old)
        if unfinished.draft is not None:
            return self._start_over(now, client, unfinished, size, config, request, Code.NOT_READY)
        if (tenant, key) in self._catalog.copies:
            return SpaceHandedOut(Code.NOT_READY, None, self._catalog.busy_n(old))
        return self._start_over_finished(now, client, old, size, config, request)

    def end(
        self,
        now_ms: int,
        client: bytes,
        tenant: bytes,
        key: bytes,
        kind: int = ReplicaKind.ALL,
        checksum: int | None = None,
    ) -> Acknowledged:
        """The bytes of a put or upsert are written: it is readable, once durable."""
        catalog = self._catalog
        tables, quarantine_ms = catalog.tables.get(tenant), 0
        entry = None if tables is None else tables[crc32(key) & 16383].get(key)
        if entry is not None and catalog.ending and not catalog.settle(entry):
            entry = None
        if catalog.pending and (beside := catalog.pending.get((tenant, key))) is not None:
            if entry is not None:
                quarantine_ms = max(0, self._leases.end_of(entry) - now_ms - self._clock.offset)
            entry = beside
        if entry is None:
            return Acknowledged(Code.NOT_FOUND, self._log.after_absent(tenant, key))
        if entry.client != client:
            self._log.refuse("another client's put")
            return Acknowledged(Code.ILLEGAL_CLIENT, entry.changed_n)
        if entry.draft is None or kind not in _OUR_KINDS:
            return Acknowledged(_OK, entry.changed_n)
        if self._disk.promotions.get((tenant, key)) == entry.put_seq:
            return Acknowledged(Code.INVALID_WRITE, entry.changed_n)  # a promotion ends by its own call
        record = PutEnd(now_ms, tenant, key, entry.put_seq, self._lease_ms, quarantine_ms, checksum)
        n = self._decisions.emit(record)
        if self._offloads is not None:
            self._offloads.finished(entry)
        return Acknowledged(_OK, n)

    def start_many(
        self, now_ms: int, client: bytes, tenant: bytes, objects: Iterable[NewObject], request: int = 0
    ) -> ManyStarted:
        """`start` for each object. Request ids count up from `request`, unless it is 0."""
        return _many(self.start, now_ms, client, tenant, objects, request)

    def start_many_upserts(
        self, now_ms: int, client: bytes, tenant: bytes, objects: Iterable[NewObject], request: int = 0
    ) -> ManyStarted:
        """`start_upsert` for each object. Request ids count up from `request`, unless it is 0."""
        return _many(self.start_upsert, now_ms, client, tenant, objects, request)

    def end_many(
        self, now_ms: int, client: bytes, tenant: bytes, written: Iterable[Written], kind: int = ReplicaKind.ALL
    ) -> Answered[list[Code]]:
        """`end` for each object. The value has the code of each. Plain ends share records."""
        catalog, end = self._catalog, self.end
        codes: list[Code] = []
        append, after = codes.append, 0
        shares = self._features.level >= LEVEL_OF[PutEnds] and kind in _OUR_KINDS and not catalog.ending
        # A shared record has no keys, and in replay its puts may be unknown: it could not end older versions on disk.
        shares = shares and not self._disk.count
        ending: dict[int, None] = {}  # put numbers of the next record, in order
        for key, checksum in written:
            tables = catalog.tables.get(tenant)
            entry = None if tables is None else tables[crc32(key) & 16383].get(key)
            if (
                shares
                and entry is not None
                and entry.draft is not None
                and checksum is None
                and not catalog.pending
                and entry.client == client
            ):
                ending[entry.put_seq] = None  # a key that is named twice ends once
                append(_OK)
                if len(ending) == batch_record_keys_max:
                    after = max(after, self._emit_ends(now_ms, ending))
                continue
            if ending:
                after = max(after, self._emit_ends(now_ms, ending))  # in order: the key may be among them
            reply = end(now_ms, client, tenant, key, kind, checksum)
            if reply.after > after:
                after = reply.after
            append(reply.code)
        if ending:
            after = max(after, self._emit_ends(now_ms, ending))
        return Answered(_OK, codes, after)

    def _emit_ends(self, now_ms: int, ending: dict[int, None]) -> int:
        """Decide the ends of these puts in one record, and empty the list."""
        put_seqs = tuple(ending)
        ending.clear()
        unfinished, offloads = self._catalog.unfinished, self._offloads
        entries = [unfinished[put_seq] for put_seq in put_seqs] if offloads is not None else []
        n = self._decisions.emit(PutEnds(now_ms, put_seqs, self._lease_ms))
        if offloads is not None:
            for entry in entries:
                offloads.finished(entry)
        return n

    def revoke(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, kind: int = ReplicaKind.ALL
    ) -> Acknowledged:
        """Give an unfinished put or upsert back. Its space is quarantined: its writer may still be sending bytes."""
        entry = self._catalog.being_written(tenant, key)
        if entry is None:
            return Acknowledged(Code.NOT_FOUND, self._log.after_absent(tenant, key))
        if entry.client != client:
            self._log.refuse("another client's put")
            return Acknowledged(Code.ILLEGAL_CLIENT, entry.changed_n)
        promoted = self._disk.promotions.get((tenant, key)) == entry.put_seq
        if entry.draft is None or kind not in _OUR_KINDS or promoted:
            return Acknowledged(Code.INVALID_WRITE, entry.changed_n)
        quarantine_ms = self._writer_time_left(entry, now_ms + self._clock.offset)
        return Acknowledged(_OK, self._decisions.emit(PutRevoke(now_ms, tenant, key, entry.put_seq, quarantine_ms)))

    def end_stale(self, now: int) -> None:
        """Revoke unfinished puts whose writer must have given up; the oldest is first."""
        unfinished = self._catalog.unfinished
        while unfinished:
            entry = next(iter(unfinished.values()))
            if self._space.writer_gives_up(entry) > now:
                return
            at_ms = now - self._clock.offset
            self._decisions.emit(PutRevoke(at_ms, entry.tenant, entry.key, entry.put_seq, 0, Cause.PUT_TIMEOUT))

    # --- steps ---

    def _writer_time_left(self, entry: Object, now: int) -> int:
        return max(0, self._space.writer_gives_up(entry) - now)

    def _start_over(
        self, now: int, client: bytes, old: Object, size: int, config: PutConfig, request: int, busy: Code
    ) -> Started:
        """Over an unfinished put: a repeat of the same put, or one that may be replaced because it was given up."""
        draft = old.draft
        if draft is None:
            return SpaceHandedOut(busy, None, old.changed_n)
        if request and draft.request == request and old.client == client and old.size == size:
            return SpaceHandedOut(_OK, old, old.put_seq)
        # A writer that was cut off by a failover and starts again has given up the first attempt (a client has one put
        # of a key under way at a time). It gets other space: bytes of the first attempt may still arrive.
        clock = self._clock
        cut_off = old.client == client and old.put_seq < clock.begin_n
        if not cut_off and now - max(draft.started, clock.epoch_start) < self._settings.put_discard_ms:
            return SpaceHandedOut(busy, None, max(old.changed_n, self._log.range_n))
        return self._start(now, client, old, size, config, request, old, ())

    def _start_over_finished(
        self, now: int, client: bytes, old: Object, size: int, config: PutConfig, request: int
    ) -> Started:
        """Beside the old version if there is space: a writer that never ends must not cost acknowledged data (P1)."""
        leased = self._leases.end_of(old) > now
        fits = _fits(old, size) and _writable(old, config)
        if not leased and fits and not self._placement.place(size, config):
            extents = tuple(Extent(replica.segment.incarnation, replica.offset) for replica in old.replicas)
            return self._start(now, client, old, size, config, request, None, extents)
        return self._start(now, client, old, size, config, request, None, ())

    def _start_fresh(
        self, now: int, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig, request: int
    ) -> Started:
        """There is no object of this name: the usual put."""
        if self._log.refuses_records() or (tenant not in self._catalog.tables and self._too_many_tenants()):
            return SpaceHandedOut(Code.NO_SPACE, None, 0)
        if self._tenants is not None and (code := self._tenants.admit(now, tenant, size * config.replicas)):
            return SpaceHandedOut(code, None, self._tenants.changed_n)
        extents = self._placement.place(size, config) or self._eviction.place_or_evict(now, size, config)
        if not extents:
            return SpaceHandedOut(Code.NO_SPACE, None, 0)
        ttl_ms = config.soft_pin_ttl_ms
        record = PutStart(
            now - self._clock.offset, client, tenant, key, size, extents, config.soft_pin,
            self._settings.soft_pin_ttl_ms if ttl_ms is None else ttl_ms,
            config.hard_pin, config.group, request, self._is_on_disk(tenant, key), False, 0, 0, config.data_type,
        )  # fmt: skip
        n = self._decisions.emit(record)
        return SpaceHandedOut(_OK, self._catalog.unfinished[n], n)

    def _is_on_disk(self, tenant: bytes, key: bytes) -> bool:
        """Whether an upsert has an older version on disk: it stays readable until the end."""
        return bool(self._disk.count) and self._disk.readable(tenant, key) is not None

    def _start(
        self,
        now: int,
        client: bytes,
        old: Object,
        size: int,
        config: PutConfig,
        request: int,
        discarded: Object | None,
        in_place: tuple[Extent, ...],
    ) -> Started:
        """Over an existing object."""
        if self._log.refuses_records():
            return SpaceHandedOut(Code.NO_SPACE, None, 0)
        if self._tenants is not None and not in_place:
            # The space of a discarded put counts until its record is applied, which is a moment from now.
            more_bytes = size * config.replicas - (discarded.size * discarded.replica_count if discarded else 0)
            if code := self._tenants.admit(now, old.tenant, more_bytes):
                return SpaceHandedOut(code, None, self._tenants.changed_n)
        extents = in_place or self._eviction.place_or_evict(now, size, config)
        if not extents:
            return SpaceHandedOut(Code.NO_SPACE, None, 0)
        # Looked up again: the object may have been evicted to make space.
        tenant, key = old.tenant, old.key
        there = self._catalog.lookup(tenant, key)
        ttl_ms = config.soft_pin_ttl_ms
        n = self._decisions.emit(
            PutStart(
                now - self._clock.offset, client, tenant, key, size, extents, config.soft_pin,
                self._settings.soft_pin_ttl_ms if ttl_ms is None else ttl_ms,
                config.hard_pin, config.group, request,
                (there is not None and there is not discarded) or self._is_on_disk(tenant, key), bool(in_place),
                discarded.put_seq if discarded is not None else 0,
                self._writer_time_left(discarded, now) if discarded is not None else 0,
                config.data_type,
            )
        )  # fmt: skip
        return SpaceHandedOut(_OK, self._catalog.unfinished[n], n)

    # --- bad input ---

    def _too_many_tenants(self) -> bool:
        """Each tenant has its own tables, which stay for a while after its last object was deleted."""
        if len(self._catalog.tables) < tenants_max:
            return False
        self._log.refuse("too many tenants")
        return True

    def _bad_put(self, tenant: bytes, key: bytes, size: int, config: PutConfig) -> Code | None:
        good_name = 0 < len(key) <= key_bytes_max and len(tenant) <= tenant_bytes_max
        if good_name and config is self._good_config and 0 < size <= object_bytes_max:
            return None
        if not good_name:
            self._log.refuse("bad key")
            return Code.BAD_KEY if key else Code.BAD_PARAMS  # the C++ master's answer to an empty key
        if not 0 < size <= object_bytes_max:
            self._log.refuse("bad size")
            return Code.BAD_PARAMS
        ttl_ms = config.soft_pin_ttl_ms
        if ttl_ms is not None and not 0 <= ttl_ms <= self._settings.soft_pin_ttl_max_ms:
            self._log.refuse("bad soft-pin time")
            return Code.BAD_PARAMS
        if (
            not 0 < config.replicas <= replicas_max
            or not SoftPin.PRESERVE <= config.soft_pin <= SoftPin.DISABLE
            or len(config.group) > group_bytes_max
            or len(config.preferred_segments) > preferred_segments_max
        ):
            self._log.refuse("bad put config")
            return Code.BAD_PARAMS
        self._good_config = config
        return None


def _many(
    start: Callable[[int, bytes, bytes, bytes, int, PutConfig, int], Started],
    now_ms: int,
    client: bytes,
    tenant: bytes,
    objects: Iterable[NewObject],
    request: int,
) -> ManyStarted:
    """One reply for all: it waits for the highest record of any of them."""
    replies: list[Started] = []
    append, after = replies.append, 0
    for key, size, config in objects:
        reply = start(now_ms, client, tenant, key, size, config, request)
        if reply.after > after:
            after = reply.after
        append(reply)
        if request:
            request += 1
    return SpaceHandedOut(_OK, replies, after)


def _fits(old: Object, size: int) -> bool:
    """Whether the blocks of this object can hold this size."""
    allocators = [replica.segment.allocator for replica in old.replicas]
    return all(allocator.rounded(size) <= allocator.rounded(old.size) for allocator in allocators)


def _writable(old: Object, config: PutConfig) -> bool:
    """Whether the object's own extents may be written over."""
    return old.replica_count == config.replicas and all(
        replica.segment.native == config.native and replica.segment.placeable for replica in old.replicas
    )
