"""Which client wants to be notified of changes under which prefix. Pure.

Invariants: the total is at most `cache_subscriptions_max`; a prefix without subscribers is not kept.
"""

from __future__ import annotations

from leasehold.base import limits
from leasehold.base.invariants import ensure
from leasehold.cache.checks import objection_to_prefix


class Subscriptions:
    def __init__(self) -> None:
        self._clients: dict[bytes, set[str]] = {}
        self._count = 0

    def add(self, client: str, prefix: bytes) -> str | None:
        """Subscribe; returns the reason if that is refused."""
        objection = objection_to_prefix(prefix)
        if objection is not None:
            return objection
        if self._count >= limits.cache_subscriptions_max:
            return f"there are {limits.cache_subscriptions_max} subscriptions already"
        clients = self._clients.setdefault(prefix, set())
        self._count += client not in clients
        clients.add(client)
        return None

    def remove(self, client: str, prefix: bytes) -> None:
        """End one subscription, if it exists."""
        clients = self._clients.get(prefix, set())
        self._count -= client in clients
        clients.discard(client)
        if not clients:
            self._clients.pop(prefix, None)

    def forget(self, client: str) -> None:
        """Remove all subscriptions of a client."""
        for prefix in list(self._clients):
            self.remove(client, prefix)

    def interested(self, key: bytes) -> list[str]:
        """The clients subscribed to a prefix of `key`, each once."""
        if not self._clients:
            return []
        return sorted(
            {client for prefix, clients in self._clients.items() if key.startswith(prefix) for client in clients}
        )

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        ensure(self._count == sum(map(len, self._clients.values())), "subscriptions are miscounted", self._count)
        ensure(all(self._clients.values()), "a prefix without subscribers is kept")
        ensure(self._count <= limits.cache_subscriptions_max, "too many subscriptions", self._count)
