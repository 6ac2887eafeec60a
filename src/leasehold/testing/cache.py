"""`leasehold cache serve` as a separate process, and client processes that record what they read and write."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from leasehold.base.errors import LeaseholdError, UnknownOutcome
from leasehold.cache.client import Client
from leasehold.cache.settings import ClientSettings
from leasehold.testing.checkers import Operation
from leasehold.testing.ports import free_ports, listens
from leasehold.testing.process import ServerProcess

Note = Callable[[str, Operation], None]


class CacheProcess(ServerProcess):
    """A served authority; `arguments` are those of `leasehold cache serve`."""

    def __init__(self, folder: Path, *arguments: str, name: str = "cache") -> None:
        self.port = free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "leasehold", "cache", "serve", "--listen", self.address, *arguments]
        super().__init__(name, command, log_path=folder / f"{name}.log", probe=lambda: listens(self.port))

    def terms(self) -> int:
        """How many terms it has begun, according to its log."""
        return self.log_path.read_text(errors="replace").count("cache authority began a term")


class ClientProcess(ServerProcess):
    """A client that reads and writes until it is stopped, and records each operation with its time in a file.

    Times are from the host's clock, which all processes share, so their histories can be merged.
    """

    def __init__(self, folder: Path, addresses: list[str], seed: int, keys: int) -> None:
        self.history_path = folder / f"history-{seed}.jsonl"
        arguments = [",".join(addresses), str(seed), str(keys), str(self.history_path)]
        command = [sys.executable, "-m", "leasehold.testing.cache", *arguments]
        super().__init__(
            f"client-{seed}", command, log_path=folder / f"client-{seed}.log", probe=self.history_path.exists
        )

    def history(self) -> list[tuple[bytes, Operation]]:
        """Its operations. A line cut off by a kill is left out; a write without an answer has an unknown outcome."""
        found: dict[str, tuple[bytes, Operation]] = {}
        for number, line in enumerate(self.history_path.read_bytes().splitlines()):
            try:
                key, operation = msgspec.json.decode(line, type=tuple[str, Operation])
            except msgspec.DecodeError:
                continue
            if operation.what == REFUSED:
                del found[operation.argument]
            else:
                found[operation.argument or f"read {number}"] = key.encode(), operation
        return list(found.values())

    def count(self, what: str = "") -> int:
        """How many operations of this kind (default: any) have been answered so far."""
        done = [operation for _, operation in self.history() if operation.returned is not None]
        return sum(operation.what == what or not what for operation in done)


REFUSED: Final = "refused"  # a write that certainly did not happen


async def _workload(addresses: list[str], seed: int, keys: int, path: Path) -> None:
    chance = random.Random(seed)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with path.open("ab", buffering=0) as history:

        def note(key: str, operation: Operation) -> None:
            history.write(msgspec.json.encode((key, operation)) + b"\n")

        async with Client(addresses, ClientSettings(timeout_ms=8_000, attempt_timeout_ms=300)) as client:
            number = 0
            while not stop.is_set():
                number += 1
                key = f"k{chance.randrange(keys)}"
                if chance.random() < 0.95:
                    await _read(client, key, seed, note)
                else:
                    await _write(client, key, f"{seed}.{number}", chance.choice(["callback", "wait"]), note)
                await asyncio.sleep(chance.random() * 0.01 if chance.random() < 0.5 else 0)


async def _read(client: Client, key: str, seed: int, note: Note) -> None:
    called = _now_ns()
    try:
        value = await client.get(key.encode())
    except LeaseholdError:
        return
    shown = None if value is None else value.decode()
    note(key, Operation(called, _now_ns(), "read", None, shown, f"c{seed}"))


async def _write(client: Client, key: str, unique: str, mode: str, note: Note) -> None:
    begun = Operation(_now_ns(), None, "write", unique)
    note(key, begun)  # before it is sent: a killed client may have written
    try:
        version = await client.put(key.encode(), unique.encode(), mode=mode)
    except UnknownOutcome:
        return
    except LeaseholdError:
        note(key, msgspec.structs.replace(begun, what=REFUSED))
        return
    hint = version.epoch * 1e6 + version.n
    note(key, msgspec.structs.replace(begun, returned=_now_ns(), hint=hint))


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def main(arguments: list[str]) -> None:
    addresses, seed, keys, path = arguments
    asyncio.run(_workload(addresses.split(","), int(seed), int(keys), Path(path)))


if __name__ == "__main__":
    main(sys.argv[1:])
