"""Renewal of a lease of a store in this process, by the store's keeper thread."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.runtime.log import get_logger
from leasehold.store.engine import Engine

_log = get_logger("leasehold.store")


class LocalKeepAlive:
    """Renews one lease every third of its TTL, in the keeper's thread: a busy event loop does not delay it."""

    def __init__(self, engine: Engine, lease_id: int, ttl_s: int, granted_sent_ms: int) -> None:
        self._engine = engine
        self._lease_id = lease_id
        self._ttl_s = ttl_s
        self._deadline_ms = granted_sent_ms + ttl_s * 1000
        self._lost = False
        self._closed = False
        self._callbacks: list[Callable[[], None]] = []
        self._schedule(engine.now_ms())

    @property
    def lease_id(self) -> int:
        return self._lease_id

    @property
    def ttl_s(self) -> int:
        return self._ttl_s

    @property
    def deadline_ms(self) -> int:
        return self._deadline_ms

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def ended(self) -> bool:
        return self._closed or self._lost

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        self._closed = True

    def _schedule(self, now_ms: int) -> None:
        self._engine.schedule(now_ms + self._ttl_s * 1000 // 3, self._renew)

    def _renew(self, now_ms: int) -> None:
        """In the keeper's thread, lock held."""
        if self._closed:
            return
        sent_ms = self._engine.clock.now_ms()
        answer = self._engine.store.lease_keep_alive(now_ms, self._lease_id)
        if answer.ttl_s > 0:
            self._ttl_s = answer.ttl_s
            self._deadline_ms = sent_ms + answer.ttl_s * 1000
            self._schedule(now_ms)
        else:
            self._lost = True
        # Without the lock: a callback may wait for a lock whose owner is calling the store.
        self._engine.afterwards(self._notify)

    def _notify(self) -> None:
        for callback in list(self._callbacks):
            if self._closed:
                return
            try:
                callback()
            except Exception:  # the keeper must survive: all leases and writes depend on it
                _log.exception("a callback of a lease failed", lease=f"{self._lease_id:x}")
