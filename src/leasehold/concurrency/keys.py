"""The names of keys, as in Go's package, so that programs in both languages share them."""

from __future__ import annotations

import time

_last_ns = 0


def as_bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


def lease_key(prefix: bytes, lease_id: int) -> bytes:
    """`prefix` + lease id in lower-case hex without padding."""
    return prefix + f"{lease_id:x}".encode()


def unique_key(prefix: bytes) -> bytes:
    """`prefix/` + nanoseconds since 1970, as Go's recipes name their keys; never the same twice in one process."""
    global _last_ns
    _last_ns = max(_last_ns + 1, time.time_ns())
    return prefix + b"/" + str(_last_ns).encode()
