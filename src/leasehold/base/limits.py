"""Every bound in one place, each named with its unit. Settings may lower or raise some of them."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- the coordination store (the numbers of real etcd, so that one program fits both) ---
store_request_bytes_max: Final = 1536 * KIB
store_txn_ops_max: Final = 128
store_lease_ttl_s_max: Final = 9_000_000_000

# --- the wire ---
wire_frame_bytes_max: Final = 256 * MIB  # the largest answer that a client of ours takes
