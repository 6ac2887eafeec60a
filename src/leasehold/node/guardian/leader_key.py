"""The guardian's two dealings with the store: follow the leader key, give up a dead worker's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from leasehold.coord.api import Coord
from leasehold.etcd.diagnosis import unreachable
from leasehold.ha.keys import EndMarker, Keys, LeaderValue, end_epoch, unpack
from leasehold.ha.node_values import TruncationPoint
from leasehold.journal.batch import decode_explicit
from leasehold.journal.fenced_writer import Fate, FencedWriter, slot_key
from leasehold.mvcc.model import EventType, KeyValue, SortOrder
from leasehold.node.buffer.disk import DiskBuffer
from leasehold.runtime.clock import wall_us
from leasehold.runtime.outage_log import Trouble

log = structlog.get_logger("leasehold.guardian")

RETRY_PAUSE_S: Final = 0.1
RETRY_PAUSE_MAX_S: Final = 0.5  # a restarted store gives the lease its term again: that must not be slept through
CALL_TIMEOUT_S: Final = 2.0
OnLeader = Callable[[LeaderValue | None], None]


async def follow_leader(coord: Coord, url: str, keys: Keys, on_leader: OnLeader) -> None:
    """Tell `on_leader` who leads, from now on and for ever; a store that is away changes nothing."""
    away = Trouble(log, "waiting for the store: until it answers nobody can lead", "the store answers")
    while True:
        try:
            await _follow_once(coord, keys, on_leader, away)
        except Exception as error:  # whatever it is: a guardian without this task would hold connections for ever
            if not away.lasts:
                away.met(why=await unreachable(url), error=str(error), kind=type(error).__name__)
        await asyncio.sleep(RETRY_PAUSE_S)


async def _follow_once(coord: Coord, keys: Keys, on_leader: OnLeader, away: Trouble) -> None:
    listed = await coord.get(keys.leader, timeout_s=CALL_TIMEOUT_S)
    away.over()
    on_leader(_value(listed.kvs[0]) if listed.kvs else None)
    async with coord.watch(keys.leader, start_revision=listed.header.revision + 1) as stream:
        async for batch in stream:
            for event in batch.events:
                on_leader(_value(event.kv) if event.type is EventType.PUT else None)


def _value(kv: KeyValue) -> LeaderValue:
    return unpack(LeaderValue, kv.value, kv.key)


async def release(coord: Coord, keys: Keys, run: str, how: str, buffer: DiskBuffer | None = None) -> bool:
    """Delete the leader key if the reaped `run` holds it; True if it did. Only after waitpid has returned it.

    What the run left in the buffer on the disk is written first: it was acknowledged. If it cannot be, because the
    key is another's already, it stays there: whoever of this node leads next attaches it, or sets it aside.

    Tries until the store has answered; the caller sets a limit, if there is to be one. Repeating is safe whatever
    became of an answer: what is deleted is the key of exactly that run, at its create revision.
    """
    pause_s = RETRY_PAUSE_S
    drained: list[int] = []  # over all attempts: the note tells of it
    trouble = Trouble(log, "the dead worker's key cannot be given up yet: trying again")
    while True:
        try:
            return await _release_once(coord, keys, run, how, buffer, drained)
        except Exception as error:  # whatever it is: what was acknowledged depends on this task
            trouble.met(
                error=str(error),
                kind=type(error).__name__,
                waiting_bytes=buffer.bytes_left(None) if buffer is not None else 0,
            )
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_PAUSE_MAX_S)


async def drain_left_behind(coord: Coord, keys: Keys, buffer: DiskBuffer) -> None:
    """At a guardian's start: what an earlier guardian's worker acknowledged, if its key still stands.

    Nobody has reaped that worker, so its key is not given up; but its own bytes, in their order, under its own fence
    may be written by anybody. (Its guardian was killed, and is back before the lease has ended.)
    """
    pause_s = RETRY_PAUSE_S
    trouble = Trouble(log, "what is left in the buffer cannot be written yet")
    while buffer.epochs():
        try:
            kv = await coord.get_one(keys.leader, timeout_s=CALL_TIMEOUT_S)
            if kv is not None and kv.create_revision in buffer.epochs():
                await _drain(coord, keys, buffer, kv.create_revision, kv.lease, [])
            return
        except Exception as error:  # as above
            trouble.met(error=str(error), kind=type(error).__name__)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_PAUSE_MAX_S)


async def _release_once(
    coord: Coord, keys: Keys, run: str, how: str, buffer: DiskBuffer | None, drained: list[int]
) -> bool:
    kv = await coord.get_one(keys.leader, timeout_s=CALL_TIMEOUT_S)
    if kv is None:
        return False
    value = _value(kv)
    if value.run != run:
        return False
    epoch = kv.create_revision
    attached = (
        buffer is not None and epoch in buffer.epochs() and await _drain(coord, keys, buffer, epoch, kv.lease, drained)
    )
    note = EndMarker(value.name, run, "reaped", detail=how, wall_us=wall_us(), drained=len(drained))
    txn = end_epoch(keys, epoch, note)
    ended = await coord.txn(txn.compare, txn.success, timeout_s=CALL_TIMEOUT_S)
    if buffer is not None and attached and ended.succeeded:
        # The key stood until here, so nobody else wrote meanwhile, and the tail that was read was this epoch's. If not,
        # a later epoch may have given the same numbers out again: the next worker judges by the bytes.
        buffer.drop(epoch)
    return ended.succeeded


async def _drain(coord: Coord, keys: Keys, buffer: DiskBuffer, epoch: int, lease: int, drained: list[int]) -> bool:
    """Write what the dead worker had acknowledged and not yet sent, under its own fence, byte for byte.

    True if all of it is in the journal now; `drained` gets the number of each batch that was sent to the store.

    The lease is kept alive meanwhile (H6): otherwise a successor could lead before the rest is written. If there is
    nothing to be written it is left alone: somebody waits for its end.
    """
    tail_n = await _tail(coord, keys)
    if all(last_n <= tail_n for last_n, _ in buffer.read(epoch)):
        return True
    sent_ms = coord.now_ms()
    left = await coord.lease_keep_alive_once(lease, timeout_s=CALL_TIMEOUT_S)
    kept = coord.keep_alive(lease, left.ttl_s, sent_ms)
    try:
        for last_n, raw in buffer.read(epoch):
            if last_n <= tail_n:
                continue
            batch = decode_explicit(raw)
            if batch.prev_n != tail_n:
                log.error("a buffered batch does not follow the journal's tail: it will be set aside", n=batch.first_n)
                return False
            writer = FencedWriter(keys.leader, epoch)
            txn = writer.write(coord.now_ms(), slot_key(keys.explicit, batch.first_n), raw)
            drained.append(batch.first_n)
            result = await coord.txn(txn.compare, txn.success, txn.failure, timeout_s=CALL_TIMEOUT_S)
            if writer.judge(result) is not Fate.WRITTEN:
                log.error("the dead worker's epoch is over: its buffer cannot be attached any more", n=batch.first_n)
                return False
            tail_n = last_n
            log.info("a batch from the buffer is in the journal", records=len(batch.records), n=last_n)
        return True
    finally:
        kept.close()


async def _tail(coord: Coord, keys: Keys) -> int:
    """The number of the last durable record."""
    found = await coord.get(
        keys.explicit, keys.explicit_end, limit=1, sort_order=SortOrder.DESCEND, timeout_s=CALL_TIMEOUT_S
    )
    if found.kvs:
        return decode_explicit(found.kvs[0].value).last_n
    floor = await coord.get_one(keys.truncation, timeout_s=CALL_TIMEOUT_S)
    return unpack(TruncationPoint, floor.value, keys.truncation).n if floor is not None else 0
