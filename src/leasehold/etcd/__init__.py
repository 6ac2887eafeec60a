"""A real etcd cluster (or the served store) behind the `Coord` interface."""

import os

# gRPC's handlers for fork make some children crash on the spot (4 of 40, seen with 1.85 and a client in use), even
# children that never touch it, such as those of `multiprocessing`. A client does not work in a child either way, and
# says so; without the handlers the child itself lives.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
