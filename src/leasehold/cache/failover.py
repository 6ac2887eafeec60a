"""Failover: of several authorities, an election over the coordination store decides which one serves.

The leader lease is the time for which the election's session is certainly alive. It is checked before every answer.
The store fences older epochs off, and the successor waits one maximum lease term before it writes, as after a restart.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from leasehold.base.errors import CallerError, LeaseholdError, NotHeld
from leasehold.cache.authority import Authority
from leasehold.cache.settings import AuthoritySettings
from leasehold.cache.stores.api import BackingStore
from leasehold.concurrency.election import Election
from leasehold.concurrency.session import Session
from leasehold.coord.api import Coord
from leasehold.runtime.clock import BootClock

log = structlog.get_logger("leasehold.cache")
_PAUSE_S = 0.2
ELECTION_KEY: Final = "office"  # fixed: authorities of older releases campaign under the same key


async def run_for_term(
    coord: Coord,
    store: Callable[[], BackingStore],
    settings: AuthoritySettings,
    install: Callable[[Authority | None], None],
    *,
    name: str,
    prefix: str = "leasehold/cache/" + ELECTION_KEY,
    ttl_s: int = 5,
) -> None:
    """Campaign, serve for one term, and campaign again, until cancelled.

    `install` is called with the authority when its term begins, and with None when the term ends.
    """
    logged = ""  # an error that repeats is logged once per term

    def installing(authority: Authority | None) -> None:
        nonlocal logged
        logged = "" if authority is not None else logged
        install(authority)

    while True:
        try:
            async with Session.open(coord, ttl_s=ttl_s) as session:
                await _one_term(session, store(), settings, installing, name, prefix)
        except (LeaseholdError, OSError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # resigning failed, but the caller has cancelled anyway
                raise asyncio.CancelledError from error
            if isinstance(error, CallerError) and not isinstance(error, NotHeld):
                raise  # a closed client, a bad setting: trying again changes nothing
            if logged != (logged := str(error)):
                log.warning("cache authority does not serve", reason=logged)
        await asyncio.sleep(_PAUSE_S)


def run_in_office(*arguments: Any, **options: Any) -> Coroutine[Any, Any, None]:
    """Deprecated name of `run_for_term`."""
    warnings.warn("run_in_office is deprecated: call run_for_term", DeprecationWarning, stacklevel=2)
    return run_for_term(*arguments, **options)


async def _one_term(
    session: Session,
    store: BackingStore,
    settings: AuthoritySettings,
    install: Callable[[Authority | None], None],
    name: str,
    prefix: str,
) -> None:
    election = Election(session, prefix)
    leadership = await election.campaign(name)
    clock = BootClock()
    resigned = False

    def serve_until_ms() -> int:
        try:
            leadership.check()
        except NotHeld:
            return 0
        return 0 if resigned else clock.now_ms() + session.certain_for_ms

    authority = await Authority.open(store, settings, clock=clock, right=serve_until_ms)
    install(authority)
    try:
        lost = asyncio.ensure_future(session.wait_lost())
        deposed = asyncio.ensure_future(authority.deposed.wait())
        try:
            await asyncio.wait((lost, deposed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            deposed.cancel()
            if lost.done() or deposed.done():
                authority.kill()
                await store.close()
            else:  # cancelled: stop cleanly, so that the successor need not wait
                await authority.close()
            resigned = True
            install(None)
    finally:
        await election.resign()
