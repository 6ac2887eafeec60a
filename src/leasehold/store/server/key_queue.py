"""Shared by the Lock and Election services: a queue of keys, each bound to a lease, the oldest first.

The keys are those of Go's `client/v3/concurrency`, so that its users, `etcdctl lock` and these services queue together.
"""

from __future__ import annotations

from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    EventType,
    KeyValue,
    Range,
    SortOrder,
    SortTarget,
    prefix_end,
)
from leasehold.store.client import LocalClient

SESSION_TTL_S = 60  # of the lease for a caller that brings none


async def lease_or_new(client: LocalClient, lease_id: int) -> int:
    """The caller's lease, or a new one that is not renewed."""
    return lease_id or (await client.lease_grant(SESSION_TTL_S)).id


def queue_key(name: bytes, lease_id: int) -> bytes:
    """The key of a lease in the queue `name`."""
    return b"%s/%x" % (name, lease_id & 0xFFFF_FFFF_FFFF_FFFF if lease_id >= 0 else lease_id)


def created_at(key: bytes, revision: int) -> Compare:
    """A compare: `key` was created at `revision`; with 0, it does not exist."""
    return Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, revision)


def oldest(prefix: bytes) -> Range:
    return Range(prefix, prefix_end(prefix), limit=1, sort_order=SortOrder.ASCEND, sort_target=SortTarget.CREATE)


async def wait_for_turn(client: LocalClient, prefix: bytes, revision: int) -> None:
    """Wait until no key of the queue is older than `revision`. Only the next older key is watched."""
    while True:
        found = await client.get(
            prefix,
            prefix_end(prefix),
            limit=1,
            sort_order=SortOrder.DESCEND,
            sort_target=SortTarget.CREATE,
            max_create_revision=revision - 1,
        )
        if not found.kvs:
            return
        await _wait_for_deletion(client, found.kvs[0], found.header.revision)


async def _wait_for_deletion(client: LocalClient, kv: KeyValue, seen_revision: int) -> None:
    async with client.watch(kv.key, start_revision=seen_revision + 1) as watch:
        async for batch in watch:
            if any(event.type == EventType.DELETE for event in batch.events):
                return
