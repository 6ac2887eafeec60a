"""A guardian that finds, at its start, the buffer and the leader key of a worker that was not reaped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.ha.keys import Keys, LeaderValue, pack
from leasehold.index.records import Begin, Remove
from leasehold.journal.batch import encode_explicit, encode_records
from leasehold.journal.fenced_writer import slot_key
from leasehold.mvcc.model import Op, Range
from leasehold.node.buffer.disk import DiskBuffer
from leasehold.node.buffer.leftovers import BufferCleanup
from leasehold.node.guardian.leader_key import drain_left_behind, release
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.faulty import FaultyCoord

TTL_S, PASSED_S = 60, 2.5


async def _a_leader_that_is_dead(coord: Coord, keys: Keys, buffer: DiskBuffer, *, written: int, pushed: int) -> int:
    """A worker with `pushed` batches in its buffer and `written` of them in the journal; returns its lease."""
    lease = await coord.lease_grant(TTL_S)
    await coord.put(keys.leader, pack(LeaderValue("a", "run")), lease=lease.id)
    kv = await coord.get_one(keys.leader)
    assert kv is not None
    for n in range(1, pushed + 1):
        records = encode_records([Remove(n, b"default", b"key-%d" % n, 0)])
        raw = encode_explicit(kv.create_revision, n, (kv.create_revision, n - 1), 3_000, 0, [records])
        buffer.push(kv.create_revision, n, raw)
        if n <= written:
            await coord.put(slot_key(keys.explicit, n), raw)
    return lease.id


@pytest.mark.parametrize(("written", "renewed"), [(3, False), (1, True)])
async def test_the_lease_is_kept_alive_only_while_there_are_batches_to_write(
    etcd: EtcdCluster, tmp_path: Path, written: int, renewed: bool
) -> None:
    """It used to be renewed always, so the standbys waited one term longer for it to expire."""
    keys, buffer = Keys(f"c{uuid4().hex[:8]}"), DiskBuffer(tmp_path)
    async with await connect(etcd.url) as coord:
        lease = await _a_leader_that_is_dead(coord, keys, buffer, written=written, pushed=3)
        await asyncio.sleep(PASSED_S)  # etcd counts whole seconds
        await drain_left_behind(coord, keys, buffer)
        left = await coord.lease_time_to_live(lease)
        assert (left.ttl_s > TTL_S - PASSED_S) == renewed
        assert await coord.get_one(slot_key(keys.explicit, 3)) is not None
        await coord.lease_revoke(lease)


class _Stopped(FaultyCoord):
    """A guardian that is stopped for a while just before it reads the end of the journal."""

    def __init__(self, coord: Coord, explicit: bytes, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__(coord, lambda _: None)
        self._explicit, self._meanwhile = explicit, meanwhile

    async def do(self, op: Op, timeout_s: float | None = None) -> Any:
        if isinstance(op, Range) and op.key == self._explicit:
            await self._meanwhile()
        return await super().do(op, timeout_s)


async def test_a_buffer_is_not_deleted_when_a_later_epoch_reused_its_record_numbers(
    etcd: EtcdCluster, tmp_path: Path
) -> None:
    """The guardian is stopped past the lease: the journal is longer than its batch, which was never written (P1)."""
    keys, buffer = Keys(f"c{uuid4().hex[:8]}"), DiskBuffer(tmp_path)
    async with await connect(etcd.url) as coord:
        lease = await _a_leader_that_is_dead(coord, keys, buffer, written=2, pushed=3)
        ((epoch, left),) = [(old, list(buffer.read(old))) for old in buffer.epochs()]

        async def another_leads() -> None:
            await coord.lease_revoke(lease)  # as if it had expired
            await coord.put(keys.leader, pack(LeaderValue("b", "another run")))
            kv = await coord.get_one(keys.leader)
            assert kv is not None
            records = [encode_records([Begin(0, kv.create_revision, 10_000, 10_000)])]
            raw = encode_explicit(kv.create_revision, 3, (epoch, 2), 3_000, 0, records)
            await coord.put(slot_key(keys.explicit, 3), raw)

        await release(_Stopped(coord, keys.explicit, another_leads), keys, "run", "killed", buffer)
        assert list(buffer.read(epoch)) == left, "acknowledged, in no journal, and gone"
        await BufferCleanup(coord, keys, buffer, None).settle(epoch + 1_000, leads=False)
        assert buffer.quarantined().batches == 1, "the third one is kept for a person"
        await coord.delete(keys.leader)


async def test_a_buffer_in_the_journal_is_deleted_with_the_leader_key(etcd: EtcdCluster, tmp_path: Path) -> None:
    keys, buffer = Keys(f"c{uuid4().hex[:8]}"), DiskBuffer(tmp_path)
    async with await connect(etcd.url) as coord:
        lease = await _a_leader_that_is_dead(coord, keys, buffer, written=1, pushed=3)
        assert await release(coord, keys, "run", "killed", buffer)
        assert buffer.epochs() == []
        assert await coord.get_one(slot_key(keys.explicit, 3)) is not None
        assert await coord.get_one(keys.leader) is None
        await coord.lease_revoke(lease)
