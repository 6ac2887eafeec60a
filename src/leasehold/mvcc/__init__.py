"""The etcd v3 data model as a pure store: revisions, transactions, leases, watches. No I/O, no clock."""
