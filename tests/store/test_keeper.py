"""The keeper of a store on disk wakes for due timers, also if it was woken during another write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import leasehold
from leasehold.mvcc.model import EventType


async def test_a_lease_granted_while_a_group_is_written_expires(tmp_path: Path) -> None:
    """The keeper slept for an hour: it logged no clock records, and the lease did not expire."""
    async with await leasehold.connect(f"embedded://{tmp_path}") as coord:
        for number in range(20):
            await coord.put(b"before", b"%d" % number)  # the disk is known to be fast: the loop itself writes
        grant = await coord.lease_grant(2)
        put = await coord.put(b"held", b"", lease=grant.id)
        # From the put on: a machine that stalls until the lease expires must not hide the expiry.
        async with coord.watch(b"held", start_revision=put.header.revision) as stream, asyncio.timeout(60):
            async for batch in stream:
                if any(event.type is EventType.DELETE for event in batch.events):
                    return
