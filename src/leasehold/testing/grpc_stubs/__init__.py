"""etcd's services as stubs for grpcio: a second client to test ours, and the served store, against.

The modules are generated from `../../etcd/proto/` by `make proto`. Leasehold itself does not use grpcio.
"""

import os

from leasehold.testing.extra import require

require("grpc", "leasehold.testing.grpc_stubs")
# gRPC's handlers for fork crash some children immediately (4 of 40, seen with 1.85 and a client in use), even children
# that never use it, such as those of `multiprocessing`. It has to be set before grpcio is used.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
