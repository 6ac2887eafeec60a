"""How long a master is away: kill -9 of the primary's worker until the next good answer. Real nodes, real etcd.

The C++ master (0.3.13.post1, high availability and op log on) took 10.5 to 11.1 s in the same situation, 31 s when its
leader was frozen.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path

from bench.rows import record
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup
from leasehold.testing.workload import Lender, Putter, missing, recovery_ms

ROUNDS = 4


async def measure() -> None:
    """Kill the worker a few times under a little load and print what it cost."""
    with (
        EtcdCluster(1) as etcd,
        tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder,
        NodeGroup(etcd.url, 2, cluster="bench", folder=Path(folder)) as nodes,
    ):
        master = ",".join(nodes.addresses)
        took: list[int] = []
        lost = acknowledged = 0
        async with Lender(master, size=4 << 30):
            for _ in range(ROUNDS):
                await asyncio.to_thread(nodes.settle)
                putter = Putter(master, "k")
                await putter.put_batch(500)
                nodes.primary().kill_worker()
                took.append(await recovery_ms(master, putter.key(0)))
                acknowledged += len(putter.results.acknowledged)
                lost += len(await missing(master, sorted(putter.results.acknowledged)))
                putter.close()
    print(
        f"kill -9, {ROUNDS} times: median {statistics.median(took):.0f} ms, worst {max(took)} ms until the next answer"
    )
    print(f"acknowledged keys lost: {lost} of {acknowledged}")
    record("kill -9 to the next answer, median", statistics.median(took), "ms")
    record("kill -9 to the next answer, worst", max(took), "ms")


def main() -> None:
    asyncio.run(measure())


if __name__ == "__main__":
    main()
