"""The interface between the authority and the store behind it.

Only the authority may write to the store: for other writes no client is called back.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from leasehold.cache.model import Version


class Opened(Struct, frozen=True):
    """A new term of an authority: its epoch, higher than any before, and the longest lease that a predecessor may have
    granted (0: there was none, or it stopped cleanly)."""

    epoch: int
    term_before_ms: int


class Kept(Struct, frozen=True):
    """A value in the store. A store without tokens returns the version `ABSENT`."""

    value: bytes
    version: Version


class BackingStore(Protocol):
    """A durable store, unless documented otherwise. Any exception but `TokenRefused` means an unknown outcome."""

    @property
    def is_memory(self) -> bool:
        """Whether the values are only in the authority's memory, and lost in a restart."""
        ...

    async def open(self, term_ms: int) -> Opened:
        """Begin a term in one durable step: fence older epochs off, raise the maximum lease term to `term_ms` if
        that is longer, and remove the marker of a clean stop."""
        ...

    async def load(self, key: bytes) -> Kept | None: ...

    async def store(self, key: bytes, value: bytes | None, token: Version) -> None:
        """Write `value` (None: delete). Raise `TokenRefused` if the store has a newer epoch or a newer token."""
        ...

    async def settle_term(self, term_ms: int) -> None:
        """Lower the durable maximum lease term: every lease granted under the old one has expired."""
        ...

    async def mark_clean(self) -> None:
        """Record that no lease is out: after the next `open`, writes need not wait."""
        ...

    async def close(self) -> None: ...
