"""The reported state of a draining segment: only durable state, and the same after a failover."""

from __future__ import annotations

from tests.index.kit import STORAGE, follow, primary, spec, standby

from leasehold.ha.outbox import Outbox
from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.node.service.functions import MasterService
from leasehold.testing.node import NodeGroup
from leasehold.testing.workload import Lender
from leasehold.wire.client import Client
from leasehold.wire.tables import NEWEST

MOUNTED, DRAINING = 1, 4
MINUTE_MS = 60_000


def service_over(index: Index) -> MasterService:
    return MasterService(Serving(index, Outbox.always_open()), NEWEST)


def test_a_draining_segment_is_reported_only_when_its_record_is_durable() -> None:
    """P1: it answered immediately, and after a failover at that moment the segment was not draining."""
    index = primary()
    service = service_over(index)
    assert service.query_segment_status("seg1")[0] == MOUNTED
    drained_n = index.mounts.drain(0, STORAGE, spec(1).id, MINUTE_MS).after
    for answer, reply in (service.query_segment_status("seg1"), service.query_segment_status_by_id(spec(1).id)):
        assert answer == DRAINING
        assert reply.after >= drained_n, "the answer shows the drain: it waits for its record"


def test_a_standby_knows_that_a_segment_is_draining() -> None:
    index, follower = primary(), standby()
    index.mounts.drain(0, STORAGE, spec(1).id, MINUTE_MS)
    follow(follower, index)
    assert service_over(follower).query_segment_status("seg1")[0] == DRAINING


async def test_a_draining_segment_is_draining_after_a_failover(pair: NodeGroup) -> None:
    master = ",".join(pair.addresses)
    async with Lender(master) as lender:
        segment = lender.segments[0]
        await lender.client.graceful_unmount_segment(segment.id, MINUTE_MS)
        assert await lender.client.query_segment_status(segment.name) == DRAINING
        pair.primary().kill_worker()
        async with Client(master, timeout_ms=20_000) as client:
            assert await client.query_segment_status(segment.name) == DRAINING
