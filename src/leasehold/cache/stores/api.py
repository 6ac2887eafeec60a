"""What the authority needs of a store behind it.

Writes to the store that do not go through the authority are out of contract: nobody is called back for them.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from leasehold.cache.model import Version


class Opened(Struct, frozen=True):
    """A new term of office: its epoch, higher than any before, and the longest term that leases of a predecessor
    may still have (0: there was none, or it stopped cleanly)."""

    epoch: int
    term_before_ms: int


class Kept(Struct, frozen=True):
    """A value as it stands in the store. A store without tokens leaves the version out."""

    value: bytes
    version: Version


class BackingStore(Protocol):
    """Durable unless it says otherwise. What raises anything but `TokenRefused` has an unknown outcome."""

    @property
    def is_memory(self) -> bool:
        """Whether the authority's own memory is the truth: then nothing is promised over a restart."""
        ...

    async def open(self, term_ms: int) -> Opened:
        """Begin a term of office, in one durable step: fence older epochs off, raise the maximum term to `term_ms`
        if that is longer, and consume the marker of a clean stop."""
        ...

    async def load(self, key: bytes) -> Kept | None: ...

    async def store(self, key: bytes, value: bytes | None, token: Version) -> None:
        """Keep `value` (None: delete). `TokenRefused` if a newer epoch is open or a newer token stands."""
        ...

    async def settle_term(self, term_ms: int) -> None:
        """Lower the durable maximum term: everything granted under the old one is over."""
        ...

    async def mark_clean(self) -> None:
        """Say that no lease is out: the next `open` need not make anybody wait."""
        ...

    async def close(self) -> None: ...
