"""The part of HTTP/2 that gRPC needs, shared by the client of a cluster and the served store."""
