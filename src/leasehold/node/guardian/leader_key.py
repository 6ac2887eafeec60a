"""The guardian's use of the store: follow the leader key, and delete it when its own worker, the holder, is dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from leasehold.coord.api import Coord
from leasehold.etcd.diagnosis import unreachable
from leasehold.ha.keys import EndMarker, Keys, LeaderValue, end_epoch, unpack
from leasehold.ha.node_values import TruncationPoint
from leasehold.ha.signing import Signer
from leasehold.ha.view import View
from leasehold.journal.batch import decode_explicit
from leasehold.journal.fenced_writer import Fate, FencedWriter, slot_key
from leasehold.mvcc.model import EventType, KeyValue, SortOrder, prefix_end
from leasehold.node.buffer.disk import DiskBuffer
from leasehold.runtime.clock import wall_us
from leasehold.runtime.outage_log import OutageLog

log = structlog.get_logger("leasehold.guardian")

RETRY_PAUSE_S: Final = 0.1
RETRY_PAUSE_MAX_S: Final = 0.5  # a restarted store renews all leases for a full term: do not miss that time
CALL_TIMEOUT_S: Final = 2.0
OnLeader = Callable[[LeaderValue | None], None]


async def follow_leader(coord: Coord, url: str, keys: Keys, signer: Signer, on_leader: OnLeader) -> None:
    """Call `on_leader` with the leader now and after every change, without end; keep the last one during an outage.

    A value that no node of the cluster wrote counts as no leader: clients' connections are not forwarded there.
    """
    outage = OutageLog(log, "waiting for the store: no node can lead until it answers", "the store answers again")
    while True:
        try:
            await _follow_once(coord, keys, signer, on_leader, outage)
        except Exception as error:  # any error: without this task the guardian would never forward a connection
            if not outage.ongoing:
                outage.failed(why=await unreachable(url), error=str(error), kind=type(error).__name__)
        await asyncio.sleep(RETRY_PAUSE_S)


async def _follow_once(coord: Coord, keys: Keys, signer: Signer, on_leader: OnLeader, outage: OutageLog) -> None:
    listed = await coord.get(keys.leader, timeout_s=CALL_TIMEOUT_S)
    outage.succeeded()
    on_leader(await _trusted(coord, keys, signer, listed.kvs[0]) if listed.kvs else None)
    async with coord.watch(keys.leader, start_revision=listed.header.revision + 1) as stream:
        async for batch in stream:
            for event in batch.events:
                on_leader(await _trusted(coord, keys, signer, event.kv) if event.type is EventType.PUT else None)


async def _trusted(coord: Coord, keys: Keys, signer: Signer, kv: KeyValue) -> LeaderValue | None:
    """The leader value, unless it is forged."""
    nodes = (await coord.get(keys.nodes, prefix_end(keys.nodes), timeout_s=CALL_TIMEOUT_S)).kvs
    view = View(keys, signer)
    view.replace(0, kv.mod_revision, [*nodes, kv])
    if view.leader is not None and view.leader.trusted:
        return view.leader.value
    log.error("the leader key holds a value that no node of this cluster wrote: nothing is forwarded there")
    return None


def _value(kv: KeyValue) -> LeaderValue:
    return unpack(LeaderValue, kv.value, kv.key)


async def release(coord: Coord, keys: Keys, run: str, how: str, buffer: DiskBuffer | None = None) -> bool:
    """Delete the leader key if the dead `run` holds it; True if it did. Call it only after waitpid has returned.

    Batches that the run left in the buffer on disk are written first: they were acknowledged. If that is impossible,
    because another node holds the key, they stay there: the next worker of this node that leads adds or quarantines
    them.

    Retries until the store answers; the caller sets a timeout if it wants one. A retry after a lost answer is safe:
    it deletes only the key of exactly this run, at its create revision.
    """
    pause_s = RETRY_PAUSE_S
    drained: list[int] = []  # over all attempts; recorded in the end marker
    outage = OutageLog(log, "the leader key of the dead worker cannot be deleted yet: retrying")
    while True:
        try:
            return await _release_once(coord, keys, run, how, buffer, drained)
        except Exception as error:  # any error: acknowledged batches depend on this task
            outage.failed(
                error=str(error),
                kind=type(error).__name__,
                waiting_bytes=buffer.bytes_left(None) if buffer is not None else 0,
            )
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_PAUSE_MAX_S)


async def drain_left_behind(coord: Coord, keys: Keys, buffer: DiskBuffer) -> None:
    """At a guardian's start: write the batches that a previous worker acknowledged, if its leader key still exists.

    (Its guardian was killed, and restarted before the lease expired.) This process did not reap that worker, so it
    does not delete the key. But writing the same bytes, in order, under that worker's own fence is always safe.
    """
    pause_s = RETRY_PAUSE_S
    outage = OutageLog(log, "leftover batches in the buffer cannot be written yet: retrying")
    while buffer.epochs():
        try:
            kv = await coord.get_one(keys.leader, timeout_s=CALL_TIMEOUT_S)
            if kv is not None and kv.create_revision in buffer.epochs():
                await _drain(coord, keys, buffer, kv.create_revision, kv.lease, [])
            return
        except Exception as error:  # as above
            outage.failed(error=str(error), kind=type(error).__name__)
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
    marker = EndMarker(value.name, run, "reaped", detail=how, wall_us=wall_us(), drained=len(drained))
    txn = end_epoch(keys, epoch, marker)
    ended = await coord.txn(txn.compare, txn.success, timeout_s=CALL_TIMEOUT_S)
    if buffer is not None and attached and ended.succeeded:
        # The key existed until now, so no other leader wrote, and the tail that was read belongs to this epoch.
        # Otherwise a later epoch may have reused the record numbers: the next worker compares the bytes.
        buffer.drop(epoch)
    return ended.succeeded


async def _drain(coord: Coord, keys: Keys, buffer: DiskBuffer, epoch: int, lease: int, drained: list[int]) -> bool:
    """Write the batches that the dead worker acknowledged but did not send, under its fence, byte for byte.

    True if all of them are in the journal; `drained` receives the number of each batch that was sent to the store.

    The lease is kept alive meanwhile (H6), or a successor could lead before the rest is written. If there is nothing
    to write, the lease is not renewed: a standby waits for it to expire.
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
                log.error(
                    "a buffered batch does not follow the end of the journal: it will be quarantined", n=batch.first_n
                )
                return False
            writer = FencedWriter(keys.leader, epoch)
            txn = writer.write(coord.now_ms(), slot_key(keys.explicit, batch.first_n), raw)
            drained.append(batch.first_n)
            result = await coord.txn(txn.compare, txn.success, txn.failure, timeout_s=CALL_TIMEOUT_S)
            if writer.judge(result) is not Fate.WRITTEN:
                log.error(
                    "another epoch has begun: the dead worker's buffer cannot be written any more", n=batch.first_n
                )
                return False
            tail_n = last_n
            log.info("wrote a batch from the buffer to the journal", records=len(batch.records), n=last_n)
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
    truncated = await coord.get_one(keys.truncation, timeout_s=CALL_TIMEOUT_S)
    return unpack(TruncationPoint, truncated.value, truncated.key).n if truncated is not None else 0
