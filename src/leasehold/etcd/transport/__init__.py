"""A gRPC client over HTTP/2: one connection per endpoint, and only what an etcd client needs."""
