"""An honest client beside each attack: its calls stay fast, and leadership does not change."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from leasehold.pool import Pool
from leasehold.runtime.clock import boot_ns
from leasehold.testing.node import NodeGroup
from leasehold.testing.ports import free_ports, listens
from leasehold.testing.process import ServerProcess, wait_until
from leasehold.testing.store import StoreProcess

ATTACKER = Path(__file__).parent / "clients" / "attacker.py"
CALLS = 1_500
SLOWER_MAX = 5


@contextmanager
def attacking(kind: str, address: str, folder: Path) -> Iterator[None]:
    log = folder / f"attack-{kind.replace(' ', '-')}.log"
    with ServerProcess(kind, [sys.executable, str(ATTACKER), kind, address], log_path=log, probe=lambda: True) as one:
        yield
        assert one.running, one.log_tail()


async def p99_ms(pool: Pool, keys: int) -> float:
    """Of puts and reads, one after the other."""
    taken: list[int] = []
    for number in range(CALLS):
        begun = boot_ns()
        if number % 5 == 0:
            await pool.put(f"k{number % keys}", b"v" * 200, replace=True)
        else:
            await pool.exists(f"k{number % keys}")
        taken.append(boot_ns() - begun)
        await asyncio.sleep(0)
    taken.sort()
    return taken[int(len(taken) * 0.99)] / 1e6


@pytest.mark.chaos
async def test_an_honest_client_beside_each_attack(tmp_path: Path) -> None:
    """The yardstick is the same load beside a neighbour that only uses a core, as every attacker here does."""
    host_port = free_ports(1)[0]
    with (
        StoreProcess(data_dir=tmp_path / "store") as store,
        NodeGroup(f"etcd://{store.endpoint}", 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path) as nodes,
    ):
        master = ",".join(nodes.addresses)
        command = [
            sys.executable, "-m", "leasehold", "host", "--segment", "64MiB", "--listen", f"127.0.0.1:{host_port}",
            "--master", master,
        ]  # fmt: skip
        up = functools.partial(listens, host_port)
        with ServerProcess("host", command, log_path=tmp_path / "host.log", probe=up):
            primary = nodes.primary()
            wait_until(lambda: primary.status().index.segments == 1, "the segment is mounted")
            epoch = primary.status().epoch
            async with Pool(primary.rpc, timeout_ms=60_000) as pool:
                await p99_ms(pool, 100)
                with attacking("only busy", "-:0", tmp_path):
                    usual = [await p99_ms(pool, 100) for _ in range(3)]
                found: dict[str, float] = {}
                for kind, address in (
                    ("header blocks", store.endpoint),
                    ("half requests", primary.admin),
                    ("malformed requests", primary.admin),
                    ("exports", primary.admin),
                    ("broken frames", primary.rpc),
                    ("high numbers", f"127.0.0.1:{host_port}"),
                ):
                    with attacking(kind, address, tmp_path):
                        await asyncio.sleep(0.5)  # the attack is under way
                        found[kind] = min([await p99_ms(pool, 100) for _ in range(2)])
                    assert primary.status().epoch == epoch, f"leadership changed beside {kind}"
                    assert primary.is_primary()
                print({"usual": usual, **found})
                slow = {kind: ms for kind, ms in found.items() if ms > SLOWER_MAX * max(usual)}
                assert not slow, (slow, usual)
