"""Puts and upserts: start (space), end (readable), revoke (given back)."""

from __future__ import annotations

from zlib import crc32

from leasehold.base.codes import Code, ReplicaKind, SoftPin
from leasehold.base.limits import (
    group_bytes_max,
    key_bytes_max,
    object_bytes_max,
    preferred_segments_max,
    replicas_max,
    tenant_bytes_max,
    tenants_max,
)
from leasehold.index.allocator import rounded
from leasehold.index.eviction import Eviction
from leasehold.index.model import Object, PutConfig
from leasehold.index.records import Extent, PutEnd, PutRevoke, PutStart

_OK = Code.OK  # a name of the module: looking a member up in its enumeration takes longer
_OUR_KINDS = (ReplicaKind.MEMORY, ReplicaKind.ALL)
Started = tuple[Code, Object | None, int]


class Puts(Eviction):
    """Deciding about puts. Whatever hands out space waits for its record: `after` is its number (P3, schedule 1)."""

    _good_config: PutConfig | None = None

    def put_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig, request: int = 0
    ) -> Started:
        """Space for an object. A repeat with the same client and non-zero `request` gets the same answer."""
        bad = self._bad_put(tenant, key, size, config)
        if bad is not None:
            return bad, None, 0
        now = now_ms + self.offset
        tables = self.tables.get(tenant)
        old = None if tables is None else tables[crc32(key) & 16383].get(key)
        if old is not None and (self.expiry or self.ending):
            old = self._still_there(now, tenant, key)
        if old is None:
            return self._start_fresh(now, client, tenant, key, size, config, request)
        if old.draft is None:
            return Code.EXISTS, None, max(old.changed_n, self.range_n)
        return self._start_over(now, client, old, size, config, request, Code.EXISTS)

    def upsert_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig, request: int = 0
    ) -> Started:
        """As `put_start`, but over what exists.

        Beside it, readable until the end; in place only where space is short and no lease can be live.
        """
        bad = self._bad_put(tenant, key, size, config)
        if bad is not None:
            return bad, None, 0
        now = now_ms + self.offset
        old = self._still_there(now, tenant, key)
        if old is None:
            return self._start_fresh(now, client, tenant, key, size, config, request)
        unfinished = self.pending.get((tenant, key), old)
        if unfinished.draft is not None:
            return self._start_over(now, client, unfinished, size, config, request, Code.NOT_READY)
        if (tenant, key) in self.copies:
            return Code.NOT_READY, None, self._after_busy(old)
        return self._start_over_finished(now, client, old, size, config, request)

    def put_end(
        self,
        now_ms: int,
        client: bytes,
        tenant: bytes,
        key: bytes,
        kind: int = ReplicaKind.ALL,
        checksum: int | None = None,
    ) -> tuple[Code, int]:
        """The bytes are there: readable from here on, once durable."""
        tables, quarantine_ms = self.tables.get(tenant), 0
        entry = None if tables is None else tables[crc32(key) & 16383].get(key)
        if entry is not None and self.ending and not self.settle(entry):
            entry = None
        if self.pending and (beside := self.pending.get((tenant, key))) is not None:
            quarantine_ms = max(0, self.lease_end_of(entry) - now_ms - self.offset) if entry is not None else 0
            entry = beside
        if entry is None:
            return Code.NOT_FOUND, self._after_absent(tenant, key)
        if entry.client != client:
            self.refuse("another client's put")
            return Code.ILLEGAL_CLIENT, entry.changed_n
        if entry.draft is None or kind not in _OUR_KINDS:
            return _OK, entry.changed_n
        lease_ms = self.lease_ttl_ms if self.expiry else 0
        return _OK, self._emit(PutEnd(now_ms, tenant, key, entry.put_seq, lease_ms, quarantine_ms, checksum))

    def put_revoke(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, kind: int = ReplicaKind.ALL
    ) -> tuple[Code, int]:
        """Give an unfinished put back. Its space rests: bytes of its writer may still be under way."""
        entry = self._being_written(tenant, key)
        if entry is None:
            return Code.NOT_FOUND, self._after_absent(tenant, key)
        if entry.client != client:
            self.refuse("another client's put")
            return Code.ILLEGAL_CLIENT, entry.changed_n
        if entry.draft is None or kind not in _OUR_KINDS:
            return Code.INVALID_WRITE, entry.changed_n
        quarantine_ms = self._writer_time_left(entry, now_ms + self.offset)
        return Code.OK, self._emit(PutRevoke(now_ms, tenant, key, entry.put_seq, quarantine_ms))

    upsert_end = put_end
    upsert_revoke = put_revoke

    # --- steps ---

    def _still_there(self, now: int, tenant: bytes, key: bytes) -> Object | None:
        """The object of this name, unless it is over (policy `expiry`): then it goes now."""
        entry = self.lookup(tenant, key)
        if entry is None or not self.expiry or not self.is_over(entry, now) or self._busy(entry):
            return entry
        self._evict(entry)
        return None

    def _being_written(self, tenant: bytes, key: bytes) -> Object | None:
        if self.pending:
            beside = self.pending.get((tenant, key))
            if beside is not None:
                return beside
        return self.lookup(tenant, key)

    def _writer_time_left(self, entry: Object, now: int) -> int:
        return max(0, self._writer_gives_up(entry) - now)

    def _start_over(
        self, now: int, client: bytes, old: Object, size: int, config: PutConfig, request: int, busy: Code
    ) -> Started:
        """Over an unfinished put: the same one again, or one that may be replaced: given up, or old."""
        draft = old.draft
        if draft is None:
            return busy, None, old.changed_n
        if request and draft.request == request and old.client == client and old.size == size:
            return Code.OK, old, old.put_seq
        # A writer that was cut off by a failover and begins again has given the first attempt up (a client has one put
        # of a key under way at a time). It gets other space: bytes of the first one may still arrive, and rest.
        cut_off = old.client == client and old.put_seq < self.begin_n
        if not cut_off and now - max(draft.started, self.epoch_start) < self.settings.put_discard_ms:
            return busy, None, max(old.changed_n, self.range_n)
        return self._start(now, client, old, size, config, request, old, ())

    def _start_over_finished(
        self, now: int, client: bytes, old: Object, size: int, config: PutConfig, request: int
    ) -> Started:
        """Beside the old version if there is room: a writer that never ends must not cost what is acknowledged (P1)."""
        leased = self.lease_end_of(old) > now
        fits = rounded(size) <= rounded(old.size) and self._writable(old, config)
        if not leased and fits and not self._place(size, config):
            extents = tuple(Extent(replica.segment.incarnation, replica.offset) for replica in old.replicas)
            return self._start(now, client, old, size, config, request, None, extents)
        return self._start(now, client, old, size, config, request, None, ())

    @staticmethod
    def _writable(old: Object, config: PutConfig) -> bool:
        """Whether the object's own extents may be written over."""
        return len(old.replicas) == config.replicas and all(
            replica.segment.native == config.native and not replica.segment.drain_end and replica.segment.proven
            for replica in old.replicas
        )

    def _start_fresh(
        self, now: int, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig, request: int
    ) -> Started:
        """Nothing of this name is there: the usual put."""
        if self.refuses_records() or (tenant not in self.tables and self._too_many_tenants()):
            return Code.NO_SPACE, None, 0
        extents = self._place(size, config) or self._place_or_evict(now, size, config)
        if not extents:
            return Code.NO_SPACE, None, 0
        ttl_ms = config.soft_pin_ttl_ms
        record = PutStart(
            now - self.offset, client, tenant, key, size, extents, config.soft_pin,
            self.settings.soft_pin_ttl_ms if ttl_ms is None else ttl_ms,
            config.hard_pin, config.group, request, False, False, 0, 0, config.data_type,
        )  # fmt: skip
        n = self._emit(record)
        return _OK, self.unfinished[n], n

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
        """Over what is there."""
        if self.refuses_records():
            return Code.NO_SPACE, None, 0
        extents = in_place or self._place_or_evict(now, size, config)
        if not extents:
            return Code.NO_SPACE, None, 0
        # Looked for again: what was there may have been evicted to make room.
        tenant, key = old.tenant, old.key
        there = self.lookup(tenant, key)
        ttl_ms = config.soft_pin_ttl_ms
        n = self._emit(
            PutStart(
                now - self.offset, client, tenant, key, size, extents, config.soft_pin,
                self.settings.soft_pin_ttl_ms if ttl_ms is None else ttl_ms,
                config.hard_pin, config.group, request, there is not None and there is not discarded, bool(in_place),
                discarded.put_seq if discarded is not None else 0,
                self._writer_time_left(discarded, now) if discarded is not None else 0,
                config.data_type,
            )
        )  # fmt: skip
        return _OK, self.unfinished[n], n

    def _after_absent(self, tenant: bytes, key: bytes) -> int:
        return max(self.removed.get((tenant, key), 0), self.range_n)

    def _too_many_tenants(self) -> bool:
        """Each has its own tables, which are kept for a while when its last object has gone."""
        if len(self.tables) < tenants_max:
            return False
        self.refuse("too many tenants")
        return True

    # --- bad input ---

    def bad_key(self, tenant: bytes, key: bytes) -> bool:
        """Count and say whether a name can never be right."""
        if not 0 < len(key) <= key_bytes_max or len(tenant) > tenant_bytes_max:
            self.refuse("bad key")
            return True
        return False

    def _bad_put(self, tenant: bytes, key: bytes, size: int, config: PutConfig) -> Code | None:
        if (
            config is self._good_config  # most puts have the same one: it was looked at before
            and 0 < len(key) <= key_bytes_max
            and len(tenant) <= tenant_bytes_max
            and 0 < size <= object_bytes_max
        ):
            return None
        if self.bad_key(tenant, key):
            return Code.BAD_KEY if key else Code.BAD_PARAMS  # to an empty key the C++ master says "bad parameters"
        if not 0 < size <= object_bytes_max:
            self.refuse("bad size")
            return Code.BAD_PARAMS
        ttl_ms = config.soft_pin_ttl_ms
        if ttl_ms is not None and not 0 <= ttl_ms <= self.settings.soft_pin_ttl_max_ms:
            self.refuse("bad soft-pin time")
            return Code.BAD_PARAMS
        if (
            not 0 < config.replicas <= replicas_max
            or not SoftPin.PRESERVE <= config.soft_pin <= SoftPin.DISABLE
            or len(config.group) > group_bytes_max
            or len(config.preferred_segments) > preferred_segments_max
        ):
            self.refuse("bad put config")
            return Code.BAD_PARAMS
        self._good_config = config
        return None
