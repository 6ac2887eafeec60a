"""Runs inside the environment of a Mooncake wheel: one real client, with a segment of its own, that records its calls.

    python mooncake_client.py MASTER NAME SEED STARTED_NS FILE

FILE gets one JSON line for each call, with the fields of `history.Call`. It prints `ready` when it has stored its first
object. After a line on its standard input it reads all keys once more and prints `done`. It gives its memory back and
exits after a second line, so that all clients can finish reading first. STARTED_NS is when the run began: all clients
take a new set of keys at the same moments.
"""

from __future__ import annotations

import importlib
import json
import random
import select
import sys
import time
from typing import Any, TextIO

# Run as a script, it has no `leasehold` to import from: the module is beside this file.
values: Any = importlib.import_module("values" if __name__ == "__main__" else "leasehold.testing.chaos.values")

MIB = 1 << 20
KEYS = 16
GENERATION_NS = 10_000_000_000  # after this time other keys are used
SIZES = (128, 3000)
NOT_FOUND = -704


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Recorder:
    """One client of a run."""

    def __init__(self, store: Any, name: str, seed: str, started_ns: int, file: TextIO) -> None:
        self.store, self.name, self.file = store, name, file
        self.chance = random.Random(f"client {name} {seed}")
        self.started_ns = started_ns
        self.writes = 0

    def one(self) -> bool:
        """One call; returns whether it was a write that succeeded."""
        generation = (now_ns() - self.started_ns) // GENERATION_NS
        key = f"m{self.chance.randrange(KEYS)}.{generation}"
        choice = self.chance.random()
        if choice < 0.40:
            return self.upsert(key)
        if choice < 0.48:
            self.remove(key)
        else:
            self.read(key)
        return False

    def read_all(self) -> None:
        """Read every key of the run: what was acknowledged must still be there."""
        for generation in range((now_ns() - self.started_ns) // GENERATION_NS + 1):
            for number in range(KEYS):
                self.read(f"m{number}.{generation}")

    def upsert(self, key: str) -> bool:
        self.writes += 1
        version = f"{self.name}.{self.writes}"
        value = values.value_of(key, version, self.chance.randint(*SIZES))
        called_ns = now_ns()
        code = self.store.upsert(key, value)
        self.record(key, "upsert", called_ns, "ok" if code == 0 else "unknown", version, code)
        return bool(code == 0)

    def remove(self, key: str) -> None:
        called_ns = now_ns()
        code = self.store.remove(key, True)
        outcome = "ok" if code == 0 else "refused" if code == NOT_FOUND else "unknown"
        self.record(key, "remove", called_ns, outcome, None, code)

    def read(self, key: str) -> None:
        called_ns = now_ns()
        value = self.store.get(key)
        if value:
            version = values.version_in(key, value)
            problem = "" if version else f"the bytes are not a value of '{key}': {value[:60]!r}"
            self.record(key, "read", called_ns, "ok", version, 0, problem)
            return
        called_ns = now_ns()  # `get` does not distinguish a miss from a failure
        found = self.store.is_exist(key)
        if found == 0:
            self.record(key, "read", called_ns, "ok", None, NOT_FOUND)
        else:
            self.record(key, "read", called_ns, "refused" if found == 1 else "unknown", None, found)

    def record(
        self, key: str, what: str, called_ns: int, outcome: str, version: str | None, code: int, problem: str = ""
    ) -> None:
        line = {"client": self.name, "key": key, "what": what, "called_ns": called_ns, "returned_ns": now_ns()}
        line |= {"outcome": outcome, "version": version, "code": code, "problem": problem}
        self.file.write(json.dumps(line) + "\n")


def main() -> None:
    master, name, seed, started_ns, path = sys.argv[1:]
    mooncake = importlib.import_module("mooncake.store")
    store = mooncake.MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 256 * MIB, 16 * MIB, "tcp", "", master)
    if code != 0:
        raise SystemExit(f"setup failed with {code}")
    with open(path, "w") as file:
        recorder = Recorder(store, name, seed, int(started_ns), file)
        ready = False
        while not select.select([sys.stdin], [], [], 0)[0]:
            if recorder.one() and not ready:
                ready = True
                print("ready", flush=True)
            time.sleep(recorder.chance.uniform(0.004, 0.016))
        sys.stdin.readline()
        recorder.read_all()
    print("done", flush=True)
    sys.stdin.readline()
    store.close()


if __name__ == "__main__":
    main()
