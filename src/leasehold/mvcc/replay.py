"""Convert a store to records, and apply records to a store, without a journal and without watchers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from leasehold.base.errors import InvariantBroken
from leasehold.mvcc.alarms import Alarm, AlarmKind, Alarms
from leasehold.mvcc.keyspace import KeySpace
from leasehold.mvcc.leases import LeaseBook
from leasehold.mvcc.model import KeyValue
from leasehold.mvcc.records import (
    AlarmSwitched,
    Clocked,
    Committed,
    CompactedTo,
    LeaseGranted,
    LeaseRenewed,
    LeaseRevoked,
    Record,
    committed,
)


def as_records(keys: KeySpace, leases: LeaseBook, alarms: Alarms, now_ms: int) -> Iterator[Record]:
    """The whole state at the time of the call. Later changes do not show in the iterator."""
    granted = [LeaseGranted(lease.id, lease.ttl_s, lease.expiry_ms) for lease in leases]
    log = list(keys.log.items())
    last: list[Record] = [Committed(keys.revision, ())]
    last += [AlarmSwitched(alarm.member_id, alarm.kind, True) for alarm in alarms]
    if keys.compact_revision >= 0:
        last.append(CompactedTo(keys.compact_revision))
    versions = (committed(revision, places) for revision, places in log)
    return chain([Clocked(now_ms)], granted, versions, last)


def do_again(keys: KeySpace, leases: LeaseBook, alarms: Alarms, record: Record) -> None:
    """Apply `record`. (`Clocked` has no effect here.)"""
    if isinstance(record, Committed):
        _commit_again(keys, leases, record)
    elif isinstance(record, LeaseGranted):
        leases.add(record.id, record.ttl_s, record.expiry_ms)
    elif isinstance(record, LeaseRenewed):
        leases.require(record.id).renew_until(record.expiry_ms)
    elif isinstance(record, LeaseRevoked):
        leases.remove(record.id)
    elif isinstance(record, CompactedTo):
        if record.revision > keys.compact_revision:
            keys.compact(record.revision)
    elif isinstance(record, AlarmSwitched):
        alarms.switch(Alarm(record.member_id, AlarmKind(record.kind)), record.active)
    elif not isinstance(record, Clocked):
        raise InvariantBroken(f"a store cannot apply a {type(record).__name__}")


def _commit_again(keys: KeySpace, leases: LeaseBook, record: Committed) -> None:
    places = tuple([None if version is None else KeyValue(*version) for version in record.versions])
    for kv in places:
        if kv is None:
            continue
        # One by one: a transaction may put a key and delete it again.
        before = keys.replay_version(kv)
        if before is not None and before.lease:
            leases.detach(before.lease, kv.key)
        if kv.lease and leases.find(kv.lease) is not None:
            leases.attach(kv.lease, kv.key)
    keys.replay_revision(record.revision, places)
