"""The guardian's two dealings with the store: follow the leader key, give up a dead worker's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from leasehold.base.errors import LeaseholdError
from leasehold.coord.api import Coord
from leasehold.ha.keys import EndNote, Keys, LeaderValue, end_epoch, unpack
from leasehold.mvcc.model import EventType, KeyValue
from leasehold.runtime.clock import wall_us

log = structlog.get_logger("leasehold.guardian")

RETRY_PAUSE_S: Final = 0.1
CALL_TIMEOUT_S: Final = 2.0
OnLeader = Callable[[LeaderValue | None], None]


async def follow_leader(coord: Coord, keys: Keys, on_leader: OnLeader) -> None:
    """Tell `on_leader` who leads, from now on and for ever; a store that is away changes nothing."""
    while True:
        try:
            await _follow_once(coord, keys, on_leader)
        except LeaseholdError as error:
            log.info("the leader key cannot be followed for the moment", error=str(error))
        await asyncio.sleep(RETRY_PAUSE_S)


async def _follow_once(coord: Coord, keys: Keys, on_leader: OnLeader) -> None:
    listed = await coord.get(keys.leader, timeout_s=CALL_TIMEOUT_S)
    on_leader(_value(listed.kvs[0]) if listed.kvs else None)
    async with coord.watch(keys.leader, start_revision=listed.header.revision + 1) as stream:
        async for batch in stream:
            for event in batch.events:
                on_leader(_value(event.kv) if event.type is EventType.PUT else None)


def _value(kv: KeyValue) -> LeaderValue:
    return unpack(LeaderValue, kv.value, kv.key)


async def release(coord: Coord, keys: Keys, run: str, how: str, give_up_s: float) -> bool:
    """Delete the leader key if the reaped `run` holds it; True if it did. Only after waitpid has returned it.

    Repeating is safe whatever became of an answer: what is deleted is the key of exactly that run, at its create
    revision. After `give_up_s` the lease has done the same.
    """
    try:
        async with asyncio.timeout(give_up_s):
            while True:
                try:
                    return await _release_once(coord, keys, run, how)
                except LeaseholdError as error:
                    log.warning("the dead worker's key cannot be given up yet", error=str(error))
                await asyncio.sleep(RETRY_PAUSE_S)
    except TimeoutError:
        log.warning("the dead worker's key was not given up: the store did not answer; its lease ends it")
        return False


async def _release_once(coord: Coord, keys: Keys, run: str, how: str) -> bool:
    kv = await coord.get_one(keys.leader, timeout_s=CALL_TIMEOUT_S)
    if kv is None:
        return False
    value = _value(kv)
    if value.run != run:
        return False
    note = EndNote(name=value.name, run=run, cause="reaped", detail=how, wall_us=wall_us())
    txn = end_epoch(keys, kv.create_revision, note)
    await coord.txn(txn.compare, txn.success, timeout_s=CALL_TIMEOUT_S)
    return True
