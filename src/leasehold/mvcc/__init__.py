"""The etcd v3 data model as a pure store: revisions, transactions, leases, watches. No I/O, no clock."""

from leasehold.mvcc.store import Store
from leasehold.mvcc.watch import Watcher

__all__ = ["Store", "Watcher"]
