"""The keeper of a store on a disk wakes for what is due, also when it was roused while somebody else wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import leasehold
from leasehold.mvcc.model import EventType


async def test_a_lease_granted_while_a_group_is_written_ends_by_itself(tmp_path: Path) -> None:
    """The keeper fell asleep for an hour: no clock marks, and nobody was told that the lease had ended."""
    async with await leasehold.connect(f"embedded://{tmp_path}") as coord:
        for number in range(20):
            await coord.put(b"before", b"%d" % number)  # the disk is known to be prompt: the loop writes by itself
        grant = await coord.lease_grant(2)
        put = await coord.put(b"held", b"", lease=grant.id)
        # From the put on: a machine that stands still until the lease has ended must not hide its end.
        async with coord.watch(b"held", start_revision=put.header.revision) as stream, asyncio.timeout(60):
            async for batch in stream:
                if any(event.type is EventType.DELETE for event in batch.events):
                    return
