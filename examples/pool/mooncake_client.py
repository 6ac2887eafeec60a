"""Mooncake's own, unmodified client on Leasehold's master: `pip install mooncake-transfer-engine-non-cuda`.

    python examples/pool/mooncake_client.py [MASTER]

MASTER is HOST:PORT of a node, or etcd://HOST:PORT of the coordination store.
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

from __future__ import annotations

import sys

from mooncake.store import MooncakeDistributedStore

MIB = 1 << 20
master = sys.argv[1] if sys.argv[1:] else "127.0.0.1:50051"
store = MooncakeDistributedStore()
# its own name, metadata by handshake, a segment to lend, a buffer to read into, protocol, device, master
code = store.setup("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", master)
if code != 0:
    sys.exit(f"setup failed with {code}: does a node listen at {master}?")
print("put", store.put("mooncake/hello", b"world"))
print("get", store.get("mooncake/hello"))
store.close()
