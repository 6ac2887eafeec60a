"""The client for synchronous code: hits are answered in the calling thread, all else on a loop in another thread."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from leasehold.cache.client import Client, Statistics, Value
from leasehold.cache.model import Version
from leasehold.cache.settings import ClientSettings
from leasehold.runtime.closing import Closing
from leasehold.runtime.portal import Portal
from leasehold.runtime.tls import Tls

_clock_ns = time.clock_gettime_ns
_BOOTTIME = time.CLOCK_BOOTTIME


class SyncClient(Closing):
    """`Client` without `await`. Any number of threads may share one."""

    def __init__(
        self, where: str | Sequence[str], settings: ClientSettings | None = None, *, tls: Tls | None = None
    ) -> None:
        self._client = Client(where, settings, tls=tls)

    def get(self, key: bytes) -> bytes | None:
        """The value, or None if the key is absent."""
        entries = self._client.machine.entries
        entry = entries.find(key)
        if entry is not None and _clock_ns(_BOOTTIME) < entry.deadline_ns:
            entry.count_hit()
            with suppress(KeyError):  # the loop's thread dropped it meanwhile; it was valid when we read it
                entries.touch(key)
            return entry.value
        return self._portal().call(self._client.get, key)

    def get_versioned(self, key: bytes) -> Value:
        """As `Client.get_versioned`."""
        return self._portal().call(self._client.get_versioned, key)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """As `Client.get_many`."""
        return self._portal().call(self._client.get_many, list(keys))

    def put(
        self,
        key: bytes,
        value: bytes,
        *,
        expect: Version | None = None,
        mode: str | None = None,
        timeout_s: float | None = None,
    ) -> Version:
        """Write, and return once it has taken effect."""
        return self._portal().call(self._client.put, key, value, expect=expect, mode=mode, timeout_s=timeout_s)

    def delete(
        self, key: bytes, *, expect: Version | None = None, mode: str | None = None, timeout_s: float | None = None
    ) -> Version:
        return self._portal().call(self._client.delete, key, expect=expect, mode=mode, timeout_s=timeout_s)

    def statistics(self) -> Statistics:
        """As `Client.statistics`."""
        return self._client.statistics()

    def close(self) -> None:
        self._portal().call(self._client.close)

    def _portal(self) -> Portal:
        return Portal.shared()  # a forked child gets its own
