"""Several authorities, one in office: an election over the coordination store decides which.

The right to serve is the session's certain time, checked before every answer. The store behind fences older epochs
off, and the successor waits one maximum term before it writes, as after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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


async def run_for_term(
    coord: Coord,
    store: Callable[[], BackingStore],
    settings: AuthoritySettings,
    install: Callable[[Authority | None], None],
    *,
    name: str,
    prefix: str = "leasehold/cache/office",
    ttl_s: int = 5,
) -> None:
    """Campaign, serve while in office, begin again; until cancelled. `install` is told who serves here (or None)."""
    told = ""  # a store that is away for long is told of once

    def installing(authority: Authority | None) -> None:
        nonlocal told
        told = "" if authority is not None else told
        install(authority)

    while True:
        try:
            async with Session.open(coord, ttl_s=ttl_s) as session:
                await _one_term(session, store(), settings, installing, name, prefix)
        except (LeaseholdError, OSError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # leaving the office failed, but leaving was asked for
                raise asyncio.CancelledError from error
            if isinstance(error, CallerError) and not isinstance(error, NotHeld):
                raise  # a closed client, a bad setting: trying again changes nothing
            if told != (told := str(error)):
                log.warning("cache authority is out of office", reason=told)
        await asyncio.sleep(_PAUSE_S)


async def _one_term(
    session: Session,
    store: BackingStore,
    settings: AuthoritySettings,
    install: Callable[[Authority | None], None],
    name: str,
    prefix: str,
) -> None:
    election = Election(session, prefix)
    held = await election.campaign(name)
    clock = BootClock()
    resigned = False

    def right() -> int:
        try:
            held.check()
        except NotHeld:
            return 0
        return 0 if resigned else clock.now_ms() + session.certain_for_ms

    authority = await Authority.open(store, settings, clock=clock, right=right)
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
            else:  # asked to stop: leave the office in order, so that the successor need not wait
                await authority.close()
            resigned = True
            install(None)
    finally:
        await election.resign()
