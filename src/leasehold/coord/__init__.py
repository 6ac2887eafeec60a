"""The interface to a coordination store. The back ends are in `etcd` (a cluster) and `store` (embedded)."""
