"""etcd's JSON gateway: the same calls as over gRPC, as `POST /v3/...` with JSON."""
