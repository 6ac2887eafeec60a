"""No store: values are only in the authority's memory, and a restart loses them."""

from __future__ import annotations

from leasehold.cache.model import Version
from leasehold.cache.stores.api import Kept, Opened
from leasehold.runtime.clock import wall_us


class MemoryStore:
    """Every start begins empty. Its epoch is the time of the start, so that no version is used twice."""

    is_memory = True

    async def open(self, term_ms: int) -> Opened:
        return Opened(wall_us(), 0)

    async def load(self, key: bytes) -> Kept | None:
        return None

    async def store(self, key: bytes, value: bytes | None, token: Version) -> None:
        return None

    async def settle_term(self, term_ms: int) -> None:
        return None

    async def mark_clean(self) -> None:
        return None

    async def close(self) -> None:
        return None
