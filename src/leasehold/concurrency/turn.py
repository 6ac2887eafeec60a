"""Waiting for the first place in a queue, without polling.

Two laws besides that of `watches`:

- A turn has come only if one read shows both that no key is ahead and that the own key still exists. Without the second
  half, a waiter whose lease has expired would "win" when its predecessor leaves.
- A wait ends immediately when the session ends or the own key is deleted.
"""

from __future__ import annotations

import asyncio

from leasehold.concurrency.place import Place, Predecessors, create_compare, read_predecessors
from leasehold.concurrency.session import Session
from leasehold.concurrency.watches import watching_deletes
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Header, KeyValue, Put, TxnResult

# Pauses between reads right after a watch was set up. etcd takes "from now" as the revision that it has just read, plus
# one. If another client writes before the watch is in its list, the watch is one from the past after all, and silent
# for up to 100 ms.
EARLY_READS_S = (0.01, 0.02, 0.03, 0.04)
# The value of a mutex's key once its owner holds the lock, if the keys behind it may not know all keys ahead. Go's
# keys have no value.
HELD_VALUE = b"held"


async def turn(
    session: Session, place: Place, queue: bytes, ahead: Predecessors | None = None, *, announced: bool = False
) -> Header:
    """Wait until no key in `queue` is ahead while the own key exists; returns the header of the answer that showed it.

    `ahead` are the predecessors if they are known already. Only the nearest is watched (no thundering herd), and later
    the own key. With `announced`, a key with `HELD_VALUE` in this queue belongs to the holder of the lock.
    """
    ahead = ahead or await read_predecessors(session, place, queue, values=announced)
    while ahead.kvs:
        nearest = ahead.kvs[0]
        if announced and nearest.value == HELD_VALUE:
            ahead = ahead.only_holder()
        async with watching_deletes(session, nearest.key, puts_too=not ahead.all_known) as watches:
            if watches and (ahead.valid_at(watches.since) or await _unchanged(session, place, nearest)):
                (left,) = watches.fired
                await _nearest_or_own_gone(session, place, nearest, left)
                if announced and left.done() and left.result() == HELD_VALUE:
                    ahead = ahead.only_holder()
        if ahead.all_known:
            confirmed = await _compare(session, place.exists(), *ahead.have_left())
            if confirmed.succeeded:
                return confirmed.header
        ahead = await read_predecessors(session, place, queue, values=announced)
    return ahead.header


async def _nearest_or_own_gone(session: Session, place: Place, nearest: KeyValue, left: asyncio.Task[bytes]) -> None:
    """Wait until the nearest predecessor or the own key is deleted.

    At first both are read a few times, because the watch may be late. The own key is watched only after that: most
    waits are shorter.
    """
    still_ahead = create_compare(nearest.key, nearest.create_revision)
    for pause_s in EARLY_READS_S:
        if await session.or_lost(left, timeout_s=pause_s):
            return
        if not (await _compare(session, place.exists(), still_ahead)).succeeded:
            return
    async with watching_deletes(session, place.key) as own:
        if own and (await _compare(session, place.exists())).succeeded:
            await session.or_lost(left, *own.fired)


async def _unchanged(session: Session, place: Place, nearest: KeyValue) -> bool:
    same = Compare(nearest.key, CompareTarget.MOD, CompareResult.EQUAL, nearest.mod_revision)
    return (await _compare(session, place.exists(), same)).succeeded


async def _compare(session: Session, *compares: Compare) -> TxnResult:
    return await session.settle(lambda: session.coord.txn(compares))


async def announce_held(session: Session, place: Place) -> None:
    """Write `HELD_VALUE`, so that the keys behind need not read the queue to know that no key is ahead of this one."""
    put = Put(place.key, HELD_VALUE, lease=session.lease_id)
    await session.settle(lambda: session.coord.txn([place.exists()], [put]))
