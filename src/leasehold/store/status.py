"""What a running store says of itself."""

from __future__ import annotations

from leasehold.mvcc.model import Status
from leasehold.store.engine import Engine

# The release whose data model and API this store keeps to; clients look at it to see what they may ask.
ETCD_VERSION = "3.5.21"


def status_of(engine: Engine) -> Status:
    """The status as an etcd of one member would tell it; the lock is held."""
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
        errors=("NOSPACE",) if store.over_quota else (),
    )
