"""A gRPC server over HTTP/2: only the parts that a store needs."""
