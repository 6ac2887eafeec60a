"""Who wants to hear of changes under which prefix. Pure."""

from __future__ import annotations

from leasehold.base import limits
from leasehold.cache.checks import objection_to_prefix


class Subscriptions:
    def __init__(self) -> None:
        self._clients: dict[bytes, set[str]] = {}
        self._count = 0

    def add(self, client: str, prefix: bytes) -> str:
        """Subscribe; says why not, or nothing."""
        objection = objection_to_prefix(prefix)
        if objection:
            return objection
        if self._count >= limits.cache_subscriptions_max:
            return f"there are {limits.cache_subscriptions_max} subscriptions already"
        clients = self._clients.setdefault(prefix, set())
        self._count += client not in clients
        clients.add(client)
        return ""

    def remove(self, client: str, prefix: bytes) -> None:
        clients = self._clients.get(prefix, set())
        self._count -= client in clients
        clients.discard(client)
        if not clients:
            self._clients.pop(prefix, None)

    def forget(self, client: str) -> None:
        for prefix in list(self._clients):
            self.remove(client, prefix)

    def interested(self, key: bytes) -> list[str]:
        """Everybody with a prefix of `key`, once."""
        if not self._clients:
            return []
        return sorted(
            {client for prefix, clients in self._clients.items() if key.startswith(prefix) for client in clients}
        )
