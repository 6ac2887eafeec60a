"""Removing everything is done in steps, and answered once."""

from __future__ import annotations

import asyncio

import pytest

from leasehold.index.settings import IndexSettings
from leasehold.node.standalone import Standalone
from leasehold.wire.client import Client
from leasehold.wire.errors import MasterError
from leasehold.wire.messages import Segment
from leasehold.wire.tables import NEWEST

HOUR_MS = 3_600_000


async def test_thousands_of_objects_are_removed_in_steps_while_others_are_served() -> None:
    patient = IndexSettings(client_ttl_ms=HOUR_MS, lease_ttl_ms=HOUR_MS)  # however long the puts take
    master = Standalone([(NEWEST, ("127.0.0.1", 0))], patient)
    host, port = master.server.listeners[0].address
    try:
        async with Client(f"{host}:{port}", timeout_ms=60_000) as client:
            segment = Segment(b"s" * 16, "seg", 1 << 32, 64 << 20, "127.0.0.1:1", "tcp")
            await client.mount_segment(segment)
            keys = [f"k{number}" for number in range(6_000)]
            for start in range(0, len(keys), 1_000):
                part = keys[start : start + 1_000]
                await client.batch_put_start(part, [64] * len(part))
                await client.batch_put_end(part)
            assert await client.exist_key("k17")
            removing = asyncio.create_task(client.remove_all())
            assert await client.service_ready()
            assert await removing == 5_999  # one is leased
            assert await client.remove_by_regex("^k1", force=True) == 1
            records_n = master.index.log.last_n
            assert master.index.catalog.object_count == 0
            assert records_n > 12_000 + 3
            with pytest.raises(MasterError) as refused:
                await client.remove_by_regex("[")
            assert refused.value.code == -600
    finally:
        master.close()
