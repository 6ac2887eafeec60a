"""Equal values of many objects, kept once.

Each decoded record has its own copy of the tenant's name, the client's id and the size: 144 bytes for an object, if it
kept them. Nearly all objects of a pool have the same few.
"""

from __future__ import annotations

from leasehold.base.limits import shared_values_max

Usual = tuple[bytes, bytes, int]  # tenant, client, size


class Shared:
    """Values that objects have in common. It only saves memory: it may forget everything at any time."""

    __slots__ = ("_names", "_sizes")

    def __init__(self) -> None:
        self._names: dict[bytes, bytes] = {}
        self._sizes: dict[int, int] = {}

    def values(self, tenant: bytes, client: bytes, size: int) -> Usual:
        """The same values, as the objects before had them."""
        names, sizes = self._names, self._sizes
        if len(names) > shared_values_max:
            names.clear()
        if len(sizes) > shared_values_max:
            sizes.clear()
        return names.setdefault(tenant, tenant), names.setdefault(client, client), sizes.setdefault(size, size)
