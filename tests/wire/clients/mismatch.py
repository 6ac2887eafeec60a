"""Runs inside the wheel's own environment: what a client sees of a master of another release."""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

import sys

from mooncake.store import MooncakeDistributedStore

store = MooncakeDistributedStore()
setup = store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", sys.argv[1])
exist, put, got = store.is_exist("k"), store.put("k", b"v"), store.get("k")
print(f"setup {setup}, exist {exist}, put {put}, get {got!r}", flush=True)
