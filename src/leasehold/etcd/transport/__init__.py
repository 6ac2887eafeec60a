"""gRPC over HTTP/2, the client's half: one connection an endpoint, and nothing that a store does not need."""
