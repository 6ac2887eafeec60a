"""One interface to a coordination store, and its back ends: a real etcd cluster, and the embedded store."""
