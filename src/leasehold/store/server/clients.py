"""All connections of the served store, and what they may take together: their number, their memory, their idle time."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from typing import Protocol

from leasehold.store.settings import StoreSettings

# Connections beyond the limit that may only probe, each for a short time: a crowd must not make the store look dead.
PROBES_MAX = 16
PROBE_S = 5.0
# Above this share of the limit, connections without calls are closed after `CROWDED_IDLE_S`.
CROWDED = 0.9
CROWDED_IDLE_S = 30.0
# A silent client gets a ping. It is disconnected if it does not answer in this time.
PING_S = 20.0
SWEEP_S = 5.0
_FILES_RESERVED = 100  # for the log, snapshots and listening sockets


class Served(Protocol):
    """A connection, as the server manages it."""

    @property
    def calls(self) -> object:
        """True while calls are running."""
        ...

    def go_away(self) -> None:
        """Accept no new calls."""
        ...

    def close(self) -> None:
        """Write what is due, and close."""
        ...

    def abort(self) -> None:
        """Close without writing."""
        ...

    def idle_s(self, now_s: float) -> float:
        """How long there was no call."""
        ...

    def check_alive(self, now_s: float, silent_s: float) -> None:
        """Disconnect a client that has sent nothing for `silent_s` and does not answer a ping."""
        ...


class Memory:
    """Bytes of unfinished requests and unsent answers of all connections."""

    __slots__ = ("_bytes_max", "taken_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.taken_bytes = 0

    def take(self, count: int) -> None:
        """Count bytes; negative if they are freed."""
        self.taken_bytes += count

    @property
    def full(self) -> bool:
        return self.taken_bytes > self._bytes_max


class Burden:
    """The part of one connection in the memory. If that is full, a connection that has taken much has to wait."""

    __slots__ = ("_memory", "buffered_bytes", "held_bytes")

    HELD_BYTES_MAX = 32 << 20  # of unsent answers of one connection; beyond this, further calls wait
    REQUESTS_BYTES_MAX = 64 << 20  # of its incomplete requests; beyond this, further ones are rejected
    FAIR_BYTES = 64 << 10  # a connection that has taken less is served, however full the memory is

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.held_bytes = 0  # unsent answers
        self.buffered_bytes = 0  # incomplete and unread requests

    def hold(self, count: int) -> None:
        self.held_bytes += count
        self._memory.take(count)

    def buffer(self, count: int) -> None:
        self.buffered_bytes += count
        self._memory.take(count)

    def drop(self) -> None:
        """The connection is closed."""
        self.hold(-self.held_bytes)
        self.buffer(-self.buffered_bytes)

    @property
    def burdened(self) -> bool:
        """Whether too many answers are unsent to start another call."""
        return self.held_bytes > self.HELD_BYTES_MAX or (self._memory.full and self.held_bytes > self.FAIR_BYTES)

    @property
    def overfull(self) -> bool:
        """Whether incomplete requests have reached their limit."""
        most = self.FAIR_BYTES if self._memory.full else self.REQUESTS_BYTES_MAX
        return self.buffered_bytes > most


class Clients:
    """The open connections."""

    def __init__(self, settings: StoreSettings) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        allowed = files - _FILES_RESERVED if files != resource.RLIM_INFINITY else settings.connections_max
        self.connections_max = max(1, min(settings.connections_max, allowed))
        self.memory = Memory(settings.traffic_bytes)
        self.refused = 0  # connections beyond the limit and its reserve
        self._silent_s = settings.connection_silent_ms / 1000
        self._open: set[Served] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Served]:
        return iter(list(self._open))

    def add(self, connection: Served) -> None:
        self._open.add(connection)

    def discard(self, connection: Served) -> None:
        self._open.discard(connection)

    @property
    def crowded(self) -> bool:
        """Whether a new connection may only probe."""
        return len(self._open) >= self.connections_max

    @property
    def overcrowded(self) -> bool:
        """Whether a new connection is closed immediately."""
        return len(self._open) >= self.connections_max + PROBES_MAX

    @property
    def calls(self) -> int:
        """Connections with calls."""
        return sum(bool(one.calls) for one in self._open)

    def start(self) -> None:
        """Look for dead and idle connections from time to time."""
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _sweep(self) -> None:
        self.start()
        now_s = asyncio.get_running_loop().time()
        crowded = len(self._open) > self.connections_max * CROWDED
        for one in list(self._open):
            if crowded and not one.calls and one.idle_s(now_s) > CROWDED_IDLE_S:
                one.go_away()
                one.close()
            else:
                one.check_alive(now_s, self._silent_s)
