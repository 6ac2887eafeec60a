"""Eight clients, three faults, one lock, two registers: the fenced one has a history of one client at a time.

The checker must also be able to find it when it is not so: the register without a fence, written in the same run by the
same clients, shows the write of a client that was frozen past its lease.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.concurrency.cut import CutProxy
from tests.concurrency.register_client import LEASE_TTL_S

from leasehold.coord.api import Coord
from leasehold.mvcc.model import prefix_end
from leasehold.testing.checkers import Operation, check_register
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.waiting import until

CLIENTS = 8
RUN_S = 9.0
SCRIPT = Path(__file__).parent / "register_client.py"


class ClientProcess:
    def __init__(self, number: int, folder: Path) -> None:
        self.log = folder / f"client{number}.log"
        self.log.touch()

    async def start(self, url: str, name: str) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(SCRIPT), url, name, str(self.log), str(RUN_S)
        )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def between_read_and_write(self) -> bool:
        lines = self.lines()
        return bool(lines) and "old" in lines[-1]

    def operations(self, register: str) -> list[Operation]:
        """What this client did to `register`; what has no end in the log may have happened."""
        calls: dict[int, dict[str, Any]] = {}
        found: list[Operation] = []
        for line in self.lines():
            if line.get("register") != register:
                continue
            if "old" in line:
                calls[line["id"]] = line
            elif line["done"]:
                found.append(operation(calls.pop(line["id"]), line["at"]))
            else:
                calls.pop(line["id"])
        return found + [operation(call, None) for call in calls.values()]


def operation(call: dict[str, Any], returned: int | None) -> Operation:
    return Operation(
        called=call["called"], returned=returned, what="cas", argument=(call["old"], call["old"] + 1), result=True
    )


async def freeze_inside(client: ClientProcess) -> None:
    """SIGSTOP when it has read and not yet written; again if it was too late."""
    while True:
        await until(client.between_read_and_write, timeout_s=30)
        client.process.send_signal(signal.SIGSTOP)
        if client.between_read_and_write():
            return
        client.process.send_signal(signal.SIGCONT)


@pytest.mark.timeout(180)
async def test_no_two_holders_with_effect(etcd: EtcdCluster, etcd_coord: Coord, name: str, tmp_path: Path) -> None:
    """kill, SIGSTOP past the TTL, cut: the fenced register is linearizable, the open one is found out."""
    await etcd_coord.put(f"{name}.token".encode(), b"0" * 16)
    clients = [ClientProcess(number, tmp_path) for number in range(CLIENTS)]
    async with CutProxy(etcd.endpoints[0]) as proxy:
        for number, client in enumerate(clients):
            await client.start(f"etcd://{proxy.endpoint}" if number == 2 else etcd.url, name)
        killed, frozen, cut = clients[:3]
        await until(lambda: all(client.lines() for client in clients), timeout_s=60)
        killed.process.kill()
        await freeze_inside(frozen)
        proxy.cut()
        before = len(cut.lines())
        await asyncio.sleep(LEASE_TTL_S + 1.5)
        frozen.process.send_signal(signal.SIGCONT)
        proxy.heal()
        await asyncio.gather(*(client.process.wait() for client in clients))
        assert len(cut.lines()) >= before
    fenced = [op for client in clients for op in client.operations("fenced")]
    unfenced = [op for client in clients for op in client.operations("open")]
    assert len(fenced) > 50
    assert check_register(sorted(fenced, key=lambda op: op.called), start=0)
    assert not check_register(sorted(unfenced, key=lambda op: op.called), start=0)
    prefix = f"{name}/".encode()
    assert (await etcd_coord.get(prefix, prefix_end(prefix), count_only=True)).count <= 1  # of the killed one, at most
