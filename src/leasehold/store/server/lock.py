"""The Lock service (v3lock)."""

from __future__ import annotations

import asyncio

from leasehold.base.errors import CallerError
from leasehold.etcd.pb import lock_pb2
from leasehold.mvcc.model import Header, Put, PutResult, Range, RangeResult
from leasehold.store.client import LocalClient
from leasehold.store.server import convert
from leasehold.store.server.dispatch import Methods
from leasehold.store.server.http2.streams import Message, unary
from leasehold.store.server.key_queue import created_at, lease_or_new, oldest, queue_key, wait_for_turn


class SessionExpired(CallerError):
    """etcd's message for a lock whose lease expired while its caller waited."""

    def __init__(self) -> None:
        super().__init__("mutex: session is expired")


def lock_service(client: LocalClient) -> Methods:
    """Method -> handler."""

    async def lock(m: Message) -> Message:
        lease = await lease_or_new(client, m.lease)
        key = queue_key(m.name, lease)
        try:
            header = await _acquire(client, m.name + b"/", key, lease)
        except BaseException:
            # A caller that gives up must not block the others. Shielded, because the call may be cancelled.
            await asyncio.shield(client.delete(key))
            raise
        return lock_pb2.LockResponse(header=convert.header(header), key=key)

    async def unlock(m: Message) -> Message:
        result = await client.delete(m.key)
        return lock_pb2.UnlockResponse(header=convert.header(result.header))

    return {
        "Lock": unary(lock_pb2.LockRequest, lock, plain=True),
        "Unlock": unary(lock_pb2.UnlockRequest, unlock, plain=True),
    }


async def _acquire(client: LocalClient, prefix: bytes, key: bytes, lease: int) -> Header:
    """Join the queue and wait. Returns the header of the answer that showed the lock as held."""
    done = await client.txn([created_at(key, 0)], [Put(key, b"", lease), oldest(prefix)], [Range(key), oldest(prefix)])
    mine, front = done.results
    assert isinstance(front, RangeResult)
    if isinstance(mine, PutResult):
        revision = done.header.revision
    else:
        assert isinstance(mine, RangeResult)
        revision = mine.kvs[0].create_revision
    if not front.kvs or front.kvs[0].create_revision == revision:
        return done.header
    await wait_for_turn(client, prefix, revision)
    held = await client.get(key)
    if not held.kvs:
        raise SessionExpired
    return held.header
