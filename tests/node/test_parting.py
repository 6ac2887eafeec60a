"""Requests to a guardian that stops: refused one by one, however their bytes arrive."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from uuid import uuid4

from leasehold.node.guardian.parting import RequestRefuser
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup
from leasehold.testing.workload import Lender, Putter, missing
from leasehold.wire.frame import Err, ResponseReader, request


def test_every_whole_request_gets_one_refusal() -> None:
    rng = random.Random(5)
    for _ in range(200):
        sizes = [rng.choice([0, 1, 20, 300]) for _ in range(rng.randrange(1, 8))]
        sent = b"".join(request(seq, 7, bytes(size), bytes(size // 2)) for seq, size in enumerate(sizes))
        cut = rng.randrange(len(sent) + 1)
        refuser, reader, seen = RequestRefuser(), ResponseReader(1 << 20), []
        at = 0
        while at < cut:
            step = rng.randrange(1, 40)
            seen += reader.feed(refuser.feed(sent[at : min(at + step, cut)]))
            at += step
        ends = [
            len(b"".join(request(0, 7, bytes(s), bytes(s // 2)) for s in sizes[: n + 1])) for n in range(len(sizes))
        ]
        assert [each.seq for each in seen] == [n for n, end in enumerate(ends) if end <= cut]
        assert all(each.err == Err.NOT_CONNECTED for each in seen)
    assert RequestRefuser().feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == b""


async def test_switchovers_and_restarts_of_standbys_fail_no_call(etcd: EtcdCluster, tmp_path: Path) -> None:
    """About two calls of four clients were lost with each restart of a standby that forwarded their connections."""
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path) as nodes:
        master = ",".join(nodes.addresses)
        async with Lender(master):
            putters = [Putter(master, f"k{number}") for number in range(4)]
            stop = asyncio.Event()
            loads = [asyncio.create_task(putter.run(stop, 2)) for putter in putters]
            for _ in range(2):
                assert (await asyncio.to_thread(nodes.primary().switchover))[0] == 200
                await asyncio.to_thread(nodes.settle)
                standby = nodes.standbys()[0]
                await asyncio.to_thread(standby.stop)
                await asyncio.to_thread(standby.start)
                await asyncio.to_thread(nodes.settle)
            stop.set()
            await asyncio.gather(*loads)
            assert [putter.results.failures for putter in putters] == [[], [], [], []]
            for putter in putters:
                assert await missing(master, sorted(putter.results.acknowledged)) == []
                putter.close()
