"""What storage clients report about their disks."""

from __future__ import annotations

from collections.abc import Container


class DiskCapacity:
    """Free space on the disk of each storage client, as last reported.

    Not recorded: it only orders the choices of `ssd-free-ratio-first`, and each client reports again.
    """

    __slots__ = ("_free_ratios",)

    def __init__(self) -> None:
        self._free_ratios: dict[bytes, float] = {}

    def report(self, client: bytes, total_bytes: int, used_bytes: int) -> None:
        """A client has this disk. Without a size it counts as not reported."""
        if total_bytes > 0:
            self._free_ratios[client] = 1 - min(max(used_bytes, 0), total_bytes) / total_bytes
        else:
            self._free_ratios.pop(client, None)

    def free_ratio(self, client: bytes) -> float:
        """The free part of a client's disk. A client that never reported one counts as empty, as in the C++ master."""
        return self._free_ratios.get(client, 1.0)

    def forget_all_but(self, alive: Container[bytes]) -> None:
        """Forget the disks of dead clients."""
        for client in [each for each in self._free_ratios if each not in alive]:
            del self._free_ratios[client]
