"""The status of a running store."""

from __future__ import annotations

from leasehold.mvcc.alarms import Alarm, AlarmKind
from leasehold.mvcc.model import Status
from leasehold.mvcc.store import Store
from leasehold.store.engine import Engine

# The etcd release whose data model and API this store implements. Clients read it to choose features.
ETCD_VERSION = "3.5.21"
CLUSTER_VERSION = "3.5.0"


def active_alarms(store: Store) -> list[Alarm]:
    """Alarms that clients have activated, and NOSPACE while the store is full."""
    full = Alarm(store.member_id, AlarmKind.NOSPACE)
    return [*store.alarms, *([full] if store.over_quota and full not in store.alarms else [])]


def status_of(engine: Engine) -> Status:
    """The status as an etcd of one member reports it; lock held."""
    store = engine.store
    keys = store.keys
    return Status(
        header=store.header(),
        version=ETCD_VERSION,
        db_size=keys.total_bytes,
        leader=store.member_id,
        raft_index=store.revision,
        raft_term=store.term,
        db_size_in_use=keys.live_bytes,
        errors=tuple(f"memberID:{alarm.member_id} alarm:{alarm.kind.name} " for alarm in active_alarms(store)),
    )
