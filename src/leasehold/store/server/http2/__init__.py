"""gRPC over HTTP/2, the server's half: as much of both as a store needs, and nothing on the way that it does not."""
