"""The embedded store over gRPC: the services of an etcd server, for `etcdctl` and any etcd client."""
