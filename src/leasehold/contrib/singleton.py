"""One instance of a fleet does the work; the others wait for it to end.

    with Singleton("scheduler", store="etcd://127.0.0.1:2379") as singleton:
        held = singleton.wait()                  # this process is now the only one
        while singleton.held() is not None: ...  # local and cheap: no round trip

`Singleton` campaigns in the background until it is closed: it leads, loses, and campaigns again.
`leasehold.contrib.only_one` is the simple form for one function.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress

import leasehold.sync
from leasehold.base.errors import InvalidArgument, LeaseholdError, NotHeld
from leasehold.concurrency import Election, Held, Session
from leasehold.contrib.ticks import Ticks
from leasehold.coord.api import Coord
from leasehold.runtime.closing import Closing
from leasehold.runtime.log import get_logger

log = get_logger(__name__)

PREFIX = "/leasehold/singleton/"
STORE_VARIABLE = "LEASEHOLD_COORD"
DEFAULT_TTL_S = 10
RETRY_S = 0.5
# etcd deletes the keys of an expired lease up to this much later. The lease is shorter by it, so that a successor leads
# within the TTL.
EXPIRY_S = 1


def store_url(given: str | None) -> str:
    """The address of the store: as given, or from the environment."""
    url = given or os.environ.get(STORE_VARIABLE, "")
    if not url:
        raise InvalidArgument(
            f"no store: give store='etcd://127.0.0.1:2379', or set {STORE_VARIABLE} in the environment"
        )
    return url


def checked_name(name: str) -> str:
    """The name if it can be part of a key."""
    if not isinstance(name, str) or not name or "/" in name:
        raise InvalidArgument(f"a singleton has a non-empty name without '/', not {name!r}")
    return name


def checked_ttl(ttl_s: int) -> int:
    """The TTL if a session accepts it. A fraction would be cut off silently."""
    if not isinstance(ttl_s, int) or isinstance(ttl_s, bool) or ttl_s < 1:
        raise InvalidArgument(f"ttl_s is a whole number of seconds, at least 1, not {ttl_s!r}")
    return ttl_s


class Candidacy:
    """Campaigns for one name, again and again, on the event loop that runs it."""

    def __init__(self, coord: Coord, prefix: str, identity: str, ttl_s: int) -> None:
        self._coord = coord
        self._prefix = prefix
        self._identity = identity
        self._ttl_s = ttl_s
        self._held: Held | None = None
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"candidacy {prefix}")

    @property
    def held(self) -> Held | None:
        """The leadership, if it is certain at this moment. May be called from any thread."""
        held = self._held
        if held is None:
            return None
        try:
            held.check()
        except NotHeld:
            return None
        return held

    async def close(self) -> None:
        """Resign and end. The lease is revoked, so the name is free on return."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Campaign, lead until the session is lost, and begin again. Ends when cancelled."""
        while True:
            try:
                await self._lead_once()
            except LeaseholdError as error:
                log.warning("The campaign for a singleton failed; it is repeated.", name=self._prefix, error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _lead_once(self) -> None:
        async with Session.open(self._coord, ttl_s=self._ttl_s) as session:
            election = Election(session, self._prefix)
            self._set(await election.campaign(self._identity))
            log.info("This instance leads.", name=self._prefix, token=election.rev)
            try:
                loss = await session.wait_lost()
                log.warning("This instance does not lead any more.", name=self._prefix, reason=str(loss))
            finally:
                self._set(None)

    def _set(self, held: Held | None) -> None:
        self._held = held
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, timeout_s: float | None) -> Held | None:
        """Wait until this instance leads; None after `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while (held := self.held) is None:
                    await self._changed.wait()
                return held
        return None


class Singleton(Closing):
    """A candidate for one name in a fleet. At most one instance holds the name at any time.

    `store` is the address of the coordination store (default: the environment variable `LEASEHOLD_COORD`). A successor
    takes over immediately after `close()`, and within `ttl_s` after a crash. A child process
    never holds its parent's name.
    """

    def __init__(
        self, name: str, *, store: str | None = None, ttl_s: int = DEFAULT_TTL_S, identity: str | None = None
    ) -> None:
        self.name = checked_name(name)
        self.ttl_s = checked_ttl(ttl_s)
        self._pid = os.getpid()
        self._store = leasehold.sync.connect(store_url(store))
        self.prefix = f"{PREFIX}{name}/"
        identity = identity or f"{socket.gethostname()}:{self._pid}"
        self._candidacy = self._store.portal.call(self._campaign, identity)
        self._closed = False
        self.ticks = Ticks(self._store, f"{self.prefix}ticks/".encode())

    async def _campaign(self, identity: str) -> Candidacy:
        return Candidacy(self._store.coord, f"{self.prefix}leader", identity, max(1, self.ttl_s - EXPIRY_S))

    def held(self) -> Held | None:
        """The leadership, or None. Local: the answer is certain for this moment, without a round trip."""
        return self._candidacy.held if os.getpid() == self._pid else None

    def wait(self, timeout_s: float | None = None) -> Held | None:
        """Wait until this instance leads. Returns None after `timeout_s`, and in a forked child."""
        if os.getpid() != self._pid:
            return None
        return self._candidacy.held or self._store.portal.call(self._candidacy.wait, timeout_s)

    def close(self) -> None:
        """Resign, so that a successor starts immediately. May be called more than once; does nothing in a child."""
        if os.getpid() != self._pid or self._closed:
            return
        self._closed = True
        self._store.portal.call(self._candidacy.close)
        self._store.close()
