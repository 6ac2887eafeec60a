"""Space in one segment. (Interface first; the bins follow.)"""

from __future__ import annotations


class Allocator:
    """An offset allocator with O(1) bins and exact claims."""

    __slots__ = ("size", "used_bytes")

    def __init__(self, size: int) -> None:
        self.size = size
        self.used_bytes = 0
