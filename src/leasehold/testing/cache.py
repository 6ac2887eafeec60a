"""`leasehold cache serve` as a process of its own, and client processes that write down what they saw."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from leasehold.base.errors import LeaseholdError, UnknownOutcome
from leasehold.cache.client import Client
from leasehold.cache.settings import ClientSettings
from leasehold.testing.checkers import Operation
from leasehold.testing.ports import free_ports
from leasehold.testing.process import ServerProcess


class CacheProcess(ServerProcess):
    """A served authority; `arguments` are those of `leasehold cache serve`."""

    def __init__(self, folder: Path, *arguments: str, name: str = "cache") -> None:
        self.port = free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "leasehold", "cache", "serve", "--listen", self.address, *arguments]
        super().__init__(name, command, log_path=folder / f"{name}.log", probe=self._listens)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class ClientProcess(ServerProcess):
    """A client that reads and writes for a while, and writes what it saw and when to a file.

    Times are the host's: all processes of a test share that clock, so their histories make one.
    """

    def __init__(self, folder: Path, addresses: list[str], seed: int, duration_s: float, keys: int) -> None:
        self.history_path = folder / f"history-{seed}.jsonl"
        arguments = [",".join(addresses), str(seed), str(duration_s), str(keys), str(self.history_path)]
        command = [sys.executable, "-m", "leasehold.testing.cache", *arguments]
        super().__init__(
            f"client-{seed}", command, log_path=folder / f"client-{seed}.log", probe=self.history_path.exists
        )

    def history(self) -> list[tuple[bytes, Operation]]:
        """What it saw; a line cut off by a kill is left out."""
        found = []
        for line in self.history_path.read_bytes().splitlines():
            try:
                key, operation = msgspec.json.decode(line, type=tuple[str, Operation])
            except msgspec.DecodeError:
                continue
            found.append((key.encode(), operation))
        return found


async def _workload(addresses: list[str], seed: int, duration_s: float, keys: int, path: Path) -> None:
    chance = random.Random(seed)
    end = time.monotonic() + duration_s
    with path.open("ab", buffering=0) as history:
        async with Client(addresses, ClientSettings(timeout_ms=8_000, attempt_timeout_ms=300)) as client:
            number = 0
            while time.monotonic() < end:
                number += 1
                key = f"k{chance.randrange(keys)}"
                operation = await _one(client, chance, key.encode(), f"{seed}.{number}", seed)
                if operation is not None:
                    history.write(msgspec.json.encode((key, operation)) + b"\n")
                if chance.random() < 0.3:
                    await asyncio.sleep(chance.random() * 0.005)


async def _one(client: Client, chance: random.Random, key: bytes, unique: str, seed: int) -> Operation | None:
    called = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    process = f"c{seed}"
    if chance.random() < 0.95:
        try:
            value = await client.get(key)
        except LeaseholdError:
            return None
        shown = None if value is None else value.decode()
        return Operation(called, time.clock_gettime_ns(time.CLOCK_BOOTTIME), "read", None, shown, process)
    try:
        version = await client.put(key, unique.encode(), mode=chance.choice(["callback", "wait"]))
    except UnknownOutcome:
        return Operation(called, None, "write", unique, None, process)
    except LeaseholdError:
        return None
    returned = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return Operation(called, returned, "write", unique, None, process, version.epoch * 1e6 + version.n)


def main(arguments: list[str]) -> None:
    addresses, seed, duration_s, keys, path = arguments
    asyncio.run(_workload(addresses.split(","), int(seed), float(duration_s), int(keys), Path(path)))


if __name__ == "__main__":
    main(sys.argv[1:])
