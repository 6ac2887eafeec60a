"""The embedded store over gRPC: the services of an etcd server, so that `etcdctl` and every client can use it."""
