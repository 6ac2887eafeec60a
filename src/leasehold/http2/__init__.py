"""HTTP/2 as far as gRPC needs it: what the served store and the client of a cluster share."""
