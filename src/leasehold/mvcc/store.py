"""The store: the etcd v3 data model as one ordinary object.

It is deterministic: calls that depend on time take `now_ms`, and `lease_ids` supplies lease ids that the caller did not
choose. Equal calls in equal order give equal stores.

Time is the *store's* time in milliseconds, which continues over restarts (see `records.Clocked`). Leases expire only in
`tick`: call it when `next_expiry_ms` is reached, before any other call at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from leasehold.mvcc import ranges
from leasehold.mvcc.alarms import Alarm, Alarms
from leasehold.mvcc.check import check_delete, check_put, check_range, check_txn, cost_bytes, taken, writes
from leasehold.mvcc.errors import Compacted, FutureRevision, KeyNotFound, LeaseNotFound, NoSpace
from leasehold.mvcc.keyspace import VERSION_OVERHEAD_BYTES, KeySpace
from leasehold.mvcc.leases import LeaseBook
from leasehold.mvcc.model import (
    CompactResult,
    CompareResult,
    CompareTarget,
    DeleteRange,
    DeleteResult,
    Header,
    KeyValue,
    LeaseGrantResult,
    LeaseKeepAliveResult,
    LeaseListResult,
    LeaseRevokeResult,
    LeaseTimeToLiveResult,
    Op,
    OpResult,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
    Watch,
    WatchBatch,
)
from leasehold.mvcc.records import (
    AlarmSwitched,
    Clocked,
    CompactedTo,
    LeaseGranted,
    LeaseRenewed,
    LeaseRevoked,
    Record,
    committed,
)
from leasehold.mvcc.replay import as_records, do_again
from leasehold.mvcc.watch import Wake, Watcher, WatchHub

_NO_HEADER = Header(0)
_CREATE, _EQUAL = CompareTarget.CREATE, CompareResult.EQUAL
EVENTS_PER_PULL = 1_000


class Store:
    """Keys, transactions, leases, watches. Not thread-safe; nothing in it blocks.

    `journal`, if given, receives every record in order, before the call that caused it returns. The engine must make
    those records durable before it answers the caller, and before it delivers events of their revision to a watcher
    (`pull(..., upto_revision=...)`).
    """

    __slots__ = (
        "_hub",
        "_journal",
        "_keys",
        "_lease_ids",
        "_leases",
        "alarms",
        "cluster_id",
        "member_id",
        "quota_bytes",
        "term",
    )

    def __init__(
        self,
        *,
        lease_ttl_s_min: int = 1,
        lease_ids: Callable[[], int] | None = None,
        journal: Callable[[Record], None] | None = None,
        quota_bytes: int = 0,
        cluster_id: int = 0,
        member_id: int = 0,
    ) -> None:
        self._keys = KeySpace()
        self._leases = LeaseBook(lease_ttl_s_min)
        self._hub = WatchHub(self._keys)
        self.alarms = Alarms()  # changed by `switch_alarm` only
        self._lease_ids = lease_ids or count(0x6C656173_65000000 + 1).__next__
        self._journal = journal
        self.quota_bytes = quota_bytes  # 0: no limit
        self.cluster_id = cluster_id
        self.member_id = member_id
        self.term = 1

    def journal_to(self, journal: Callable[[Record], None]) -> None:
        """Send every later record to `journal`; for a store that was just filled by `apply`."""
        self._journal = journal

    def set_identity(self, cluster_id: int, member_id: int) -> None:
        """Set the ids in later headers; for a store that was just filled by `apply`."""
        self.cluster_id = cluster_id
        self.member_id = member_id

    @property
    def revision(self) -> int:
        return self._keys.revision

    @property
    def compact_revision(self) -> int:
        """-1 before the first compaction, as in etcd."""
        return self._keys.compact_revision

    @property
    def keys(self) -> KeySpace:
        """For reading only."""
        return self._keys

    @property
    def leases_open(self) -> LeaseBook:
        """For reading only."""
        return self._leases

    def header(self) -> Header:
        return Header(self._keys.revision, self.cluster_id, self.member_id, self.term)

    # --- keys ---

    def execute(self, op: Op) -> OpResult:
        """Run any operation."""
        if type(op) is Txn:
            return self.txn(op)
        if isinstance(op, Put):
            return self.put(op)
        if isinstance(op, Range):
            return self.range(op)
        if isinstance(op, Txn):
            return self.txn(op)
        return self.delete(op)

    def range(self, op: Range) -> RangeResult:
        check_range(op)
        if op.revision:
            self._keys.check_revision(op.revision)
        return ranges.read_range(self._keys, op, self.header())

    def put(self, op: Put) -> PutResult:
        check_put(op)
        self.alarms.check_intact()
        self._check_space(len(op.key) + len(op.value) + VERSION_OVERHEAD_BYTES)
        if op.lease and self._leases.find(op.lease) is None:
            raise LeaseNotFound
        if (op.ignore_value or op.ignore_lease) and self._keys.current(op.key) is None:
            raise KeyNotFound
        before = self._put(op)
        self._commit()
        return PutResult(self.header(), before if op.prev_kv else None)

    def delete(self, op: DeleteRange) -> DeleteResult:
        check_delete(op)
        self.alarms.check_intact()
        deleted = self._delete(op)
        self._commit()
        return DeleteResult(self.header(), len(deleted), tuple(deleted) if op.prev_kv else ())

    def txn(self, op: Txn) -> TxnResult:
        """Atomic, at one revision: all compares and checks come before the first change."""
        nested = check_txn(op)
        if self.quota_bytes or self.alarms:
            if writes(op):  # also if the branch that writes is not taken, as in etcd
                self.alarms.check_intact()
            self._check_space(cost_bytes(op))
        if nested:
            path: list[bool] = []
            self._decide(op, path)
            self._check_taken(taken(op, iter(path)))
            result = self._run(op, iter(path))
            succeeded, results = result.succeeded, result.results
        else:
            succeeded = self._all_hold(op)
            branch = op.success if succeeded else op.failure
            self._check_taken(branch)
            results = tuple([self._run_part(part) for part in branch])
        self._commit()
        return TxnResult(self.header(), succeeded, results)

    def compact(self, revision: int) -> CompactResult:
        self._keys.compact(revision)
        if self._journal is not None:
            self._journal(CompactedTo(revision))
        return CompactResult(self.header())

    def _all_hold(self, op: Txn) -> bool:
        keys = self._keys
        for compare in op.compare:
            if compare.target == _CREATE and compare.result == _EQUAL and not compare.range_end:
                # Inlined, because nearly every transaction compares a create revision.
                kv = keys.current(compare.key)
                if (kv.create_revision if kv is not None else 0) != compare.operand:
                    return False
            elif not ranges.holds(keys, compare):
                return False
        return True

    def _decide(self, op: Txn, path: list[bool]) -> None:
        """Append to `path` which branch each transaction takes, outermost first, in order of execution."""
        succeeded = self._all_hold(op)
        path.append(succeeded)
        for part in op.success if succeeded else op.failure:
            if isinstance(part, Txn):
                self._decide(part, path)

    def _check_taken(self, parts: Sequence[Op]) -> None:
        """Check the operations that will run against the store: all puts, then all reads."""
        for part in parts:
            if isinstance(part, Put):
                if (part.ignore_value or part.ignore_lease) and self._keys.current(part.key) is None:
                    raise KeyNotFound
                if part.lease and self._leases.find(part.lease) is None:
                    raise LeaseNotFound
        for part in parts:
            if isinstance(part, Range) and part.revision:
                if part.revision > self._keys.revision:
                    raise FutureRevision
                if part.revision < self._keys.compact_revision:
                    raise Compacted(self._keys.compact_revision)

    def _run(self, op: Txn, path: Iterator[bool]) -> TxnResult:
        succeeded = next(path)
        branch = op.success if succeeded else op.failure
        results = [self._run(part, path) if isinstance(part, Txn) else self._run_part(part) for part in branch]
        return TxnResult(_NO_HEADER, succeeded, tuple(results))

    def _run_part(self, part: Op) -> OpResult:
        keys = self._keys
        if isinstance(part, Put):
            before = self._put(part)
            return PutResult(Header(keys.revision + 1), before if part.prev_kv else None)
        if isinstance(part, Range):
            return ranges.read_range(keys, part, Header(keys.revision + bool(keys.changes)))
        assert isinstance(part, DeleteRange)
        deleted = self._delete(part)
        header = Header(keys.revision + bool(keys.changes))
        return DeleteResult(header, len(deleted), tuple(deleted) if part.prev_kv else ())

    def _put(self, op: Put) -> KeyValue | None:
        before = self._keys.current(op.key)
        value, lease = op.value, op.lease
        if before is not None:
            if op.ignore_value:
                value = before.value
            if op.ignore_lease:
                lease = before.lease
            if before.lease and before.lease != lease:
                self._leases.detach(before.lease, op.key)
        self._keys.put(op.key, value, lease)
        if lease:
            self._leases.attach(lease, op.key)
        return before

    def _delete(self, op: DeleteRange) -> list[KeyValue]:
        doomed, _ = self._keys.select(op.key, op.range_end)
        for kv in doomed:
            self._keys.delete(kv.key)
            if kv.lease:
                self._leases.detach(kv.lease, kv.key)
        return doomed

    def _commit(self) -> None:
        changes = self._keys.commit()
        if changes:
            if self._journal is not None:
                self._journal(committed(self._keys.revision, changes))
            self._hub.notify(self._keys.revision, changes)

    # --- size ---

    @property
    def over_quota(self) -> bool:
        """Whether live keys have reached the quota. History has its own limit."""
        return 0 < self.quota_bytes <= self._keys.live_bytes

    def switch_alarm(self, alarm: Alarm, active: bool) -> None:
        """Activate or deactivate an alarm, for a client."""
        self.alarms.switch(alarm, active)
        if self._journal is not None:
            self._journal(AlarmSwitched(alarm.member_id, alarm.kind, active))

    def _check_space(self, cost_bytes: int) -> None:
        if cost_bytes:
            self.alarms.check_space()
        if self.quota_bytes and cost_bytes and self._keys.live_bytes + cost_bytes > self.quota_bytes:
            raise NoSpace

    # --- leases ---

    def lease_grant(self, now_ms: int, ttl_s: int, lease_id: int = 0) -> LeaseGrantResult:
        """Grant a lease of `ttl_s`, or of the minimum TTL if that is longer. With id 0 the store chooses the id."""
        self.alarms.check_intact()
        self._check_space(1)
        lease = self._leases.grant(now_ms, lease_id or self._free_lease_id(), ttl_s)
        if self._journal is not None:
            self._journal(LeaseGranted(lease.id, lease.ttl_s, lease.expiry_ms))
        return LeaseGrantResult(self.header(), lease.id, lease.ttl_s)

    def _free_lease_id(self) -> int:
        lease_id = self._lease_ids()
        while not lease_id or self._leases.find(lease_id) is not None:
            lease_id = self._lease_ids()
        return lease_id

    def lease_revoke(self, lease_id: int) -> LeaseRevokeResult:
        """Delete a lease and all its keys, in one revision."""
        lease = self._leases.remove(lease_id)
        for key in sorted(lease.keys):
            self._keys.delete(key)
        self._commit()
        if self._journal is not None:
            self._journal(LeaseRevoked(lease_id))
        return LeaseRevokeResult(self.header())

    def lease_keep_alive(self, now_ms: int, lease_id: int) -> LeaseKeepAliveResult:
        """Renew the lease. For an unknown or expired lease the TTL in the result is 0."""
        lease = self._leases.find(lease_id)
        if lease is None or lease.expiry_ms <= now_ms:
            return LeaseKeepAliveResult(self.header(), lease_id, 0)
        lease.renew(now_ms)
        if self._journal is not None:
            self._journal(LeaseRenewed(lease_id, lease.expiry_ms))
        return LeaseKeepAliveResult(self.header(), lease_id, lease.ttl_s)

    def lease_time_to_live(self, now_ms: int, lease_id: int, *, keys: bool = False) -> LeaseTimeToLiveResult:
        lease = self._leases.find(lease_id)
        if lease is None or lease.expiry_ms <= now_ms:
            return LeaseTimeToLiveResult(self.header(), lease_id, -1)
        held = tuple(sorted(lease.keys)) if keys else ()
        return LeaseTimeToLiveResult(self.header(), lease_id, lease.remaining_ms(now_ms) // 1000, lease.ttl_s, held)

    def leases(self) -> LeaseListResult:
        """All leases, in order of expiry."""
        return LeaseListResult(self.header(), tuple(lease.id for lease in self._leases.in_order_of_expiry()))

    @property
    def next_expiry_ms(self) -> int | None:
        """A lower bound on the next expiry: when to call `tick`. It may find nothing, if the lease was renewed."""
        return self._leases.next_expiry_ms()

    def tick(self, now_ms: int) -> tuple[int, ...]:
        """Delete the expired leases, one revision each. Returns their ids."""
        ended = self._leases.ended(now_ms)
        for lease in ended:
            self.lease_revoke(lease.id)
        return tuple(lease.id for lease in ended)

    # --- watches ---

    def watch(self, watch: Watch, wake: Wake | None = None) -> Watcher:
        """Start a watch. `wake` is called when there is something to `pull`."""
        return self._hub.add(watch, wake)

    def pull(
        self, watcher: Watcher, *, upto_revision: int | None = None, events_max: int = EVENTS_PER_PULL
    ) -> WatchBatch | None:
        """The next batch for a watcher, or None; see `WatchHub.pull`."""
        upto = self._keys.revision if upto_revision is None else upto_revision
        pulled = self._hub.pull(watcher, upto, events_max)
        if pulled is None:
            return None
        return WatchBatch(Header(upto, self.cluster_id, self.member_id, self.term), pulled)

    def unwatch(self, watcher: Watcher) -> None:
        self._hub.remove(watcher)

    # --- copies ---

    def dump(self, now_ms: int) -> Iterator[Record]:
        """The whole state as records, at the time of the call. `Store.load` makes an equal store from them.

        Watches are not part of the state.
        """
        return as_records(self._keys, self._leases, self.alarms, now_ms)

    def load(self, records: Iterable[Record]) -> int:
        """Apply records to this store. Returns the time in the last `Clocked` (0 without one)."""
        now_ms = 0
        for record in records:
            if isinstance(record, Clocked):
                now_ms = record.now_ms
            else:
                do_again(self._keys, self._leases, self.alarms, record)
        return now_ms

    def apply(self, record: Record) -> None:
        """Apply `record`, without writing it to the journal and without notifying watchers."""
        do_again(self._keys, self._leases, self.alarms, record)

    def renew_all(self, now_ms: int) -> None:
        """Give every lease its full TTL again, as a real etcd does after an election or a restart."""
        for lease in self._leases:
            lease.renew(now_ms)
