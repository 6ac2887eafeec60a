"""A real etcd cluster (or the served store) behind the `Coord` interface."""
