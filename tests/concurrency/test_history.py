"""Eight clients, three faults, one lock, two registers: the fenced one has a history of one client at a time.

The checker must also be able to find it when it is not so: the register without a fence, written in the same run by the
same clients, shows the write of a client that was frozen past its lease.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.concurrency.cut import CutProxy
from tests.concurrency.helpers import state_of

from leasehold.coord.api import Coord
from leasehold.mvcc.model import prefix_end
from leasehold.testing.checkers import Operation, check_register
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.waiting import until

CLIENTS = 8
SCRIPT = Path(__file__).parent / "register_client.py"
STOP = "stop"
HISTORY_MIN = 50


class ClientProcess:
    def __init__(self, number: int, folder: Path) -> None:
        self.log = folder / f"client{number}.log"
        self.log.touch()

    async def start(self, url: str, name: str) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(SCRIPT), url, name, str(self.log), str(self.log.parent / STOP)
        )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def between_read_and_write(self) -> bool:
        lines = self.lines()
        return bool(lines) and "old" in lines[-1]

    def operations(self, register: str) -> list[Operation]:
        """This client's operations on `register`. One without an end in the log may have happened."""
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


def more_by(clients: list[ClientProcess], count: int) -> Callable[[], bool]:
    """Whether these have noted the end of `count` more writes since now."""

    def ends() -> int:
        return sum("done" in line for client in clients for line in client.lines())

    enough = ends() + count
    return lambda: ends() >= enough


def done_to(register: str, clients: list[ClientProcess]) -> list[Operation]:
    return [op for client in clients for op in client.operations(register)]


@asynccontextmanager
async def ended(clients: list[ClientProcess]) -> AsyncIterator[None]:
    """Whatever comes of the test: eight processes that go on writing would be the next tests' trouble."""
    try:
        yield
    finally:
        for process in [client.process for client in clients if hasattr(client, "process")]:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def freeze_inside(client: ClientProcess) -> None:
    """SIGSTOP when it has read and not yet written; again if it was too late."""
    while True:
        await until(client.between_read_and_write)
        client.process.send_signal(signal.SIGSTOP)
        await until(lambda: state_of(client.process.pid) == "T")
        if client.between_read_and_write():
            return
        client.process.send_signal(signal.SIGCONT)


@pytest.mark.timeout(400)  # ends a hang: eight processes start together
async def test_no_two_holders_with_effect(etcd: EtcdCluster, etcd_coord: Coord, name: str, tmp_path: Path) -> None:
    """kill, SIGSTOP past the TTL, cut: the fenced register is linearizable, the open one is found out."""
    await etcd_coord.put(f"{name}.token".encode(), b"0" * 16)
    clients = [ClientProcess(number, tmp_path) for number in range(CLIENTS)]
    async with CutProxy(etcd.endpoints[0]) as proxy, ended(clients):
        for number, client in enumerate(clients):
            await client.start(f"etcd://{proxy.endpoint}" if number == 2 else etcd.url, name)
        killed, frozen, cut = clients[:3]
        await until(lambda: all(client.lines() for client in clients), "all have begun", timeout_s=180)
        killed.process.kill()
        await freeze_inside(frozen)
        proxy.cut()
        await until(more_by(clients[3:], 10), "others continue: the lease of the frozen one has expired")
        frozen.process.send_signal(signal.SIGCONT)
        proxy.heal()
        await until(more_by([frozen], 2), "it has written what it was about to, in both")
        await until(more_by([cut], 2), "the one that was cut off works on")
        await until(more_by(clients[3:], 40), "and so do all the others")
        await until(lambda: len(done_to("fenced", clients)) > HISTORY_MIN, "the history is long enough to judge")
        (tmp_path / STOP).touch()
        await asyncio.gather(*(client.process.wait() for client in clients))
    fenced, unfenced = done_to("fenced", clients), done_to("open", clients)
    assert check_register(sorted(fenced, key=lambda op: op.called), start=0)
    assert not check_register(sorted(unfenced, key=lambda op: op.called), start=0)
    prefix = f"{name}/".encode()
    assert (await etcd_coord.get(prefix, prefix_end(prefix), count_only=True)).count <= 1  # of the killed one, at most
