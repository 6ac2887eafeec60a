"""Runs inside the wheel's own environment: eight threads of a real client through a failover, and what came of it.

    python burst.py MASTER put|upsert|exist SECONDS

Prints `ready` when all threads are at work (kill something then), works on for SECONDS, and prints one line of JSON:
how many keys were acknowledged, how many of them are lost, stale or back, how many calls failed per thread, and how
long the gap was.
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

from __future__ import annotations

import itertools
import json
import math
import statistics
import struct
import sys
import threading
import time

from mooncake import store as mooncake

MIB = 1 << 20
THREADS = 8
BATCH = 500
UPSERT_KEYS = 4_000


def connect(master):
    store = mooncake.MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 1024 * MIB, 64 * MIB, "tcp", "", master)
    if code != 0:
        raise SystemExit(f"setup failed with {code}")
    return store


class Writer(threading.Thread):
    """One thread; `acknowledged` maps a key to the newest version that was answered with success."""

    def __init__(self, store, number, mode):
        super().__init__(daemon=True)
        self.store, self.number, self.mode, self.end_s = store, number, mode, math.inf
        self.acknowledged = {}
        self.removed = set()
        self.failed = []
        self.calls = 0
        self.gap_s = 0.0
        self.good_s = []  # how long each good call took
        self.answered_at_s = []
        self.longest_call_s = 0.0

    def run(self):
        if self.mode == "exist":
            self.ask()
        else:
            self.write()

    def ask(self):
        """Single calls about a key that is there: anything but yes is a failure, a no is a false miss."""
        key = f"t{self.number}"
        if self.store.put(key, b"x" * 64) == 0:
            self.acknowledged[key] = 1
        good_s = time.monotonic()
        while time.monotonic() < self.end_s:
            start_s = time.monotonic()
            answer = self.store.is_exist(key)
            now_s = time.monotonic()
            self.longest_call_s = max(self.longest_call_s, now_s - start_s)
            if answer == 1:
                self.good_s.append(now_s - start_s)
                self.answered_at_s.append(now_s)
                self.gap_s = max(self.gap_s, now_s - good_s)
                good_s = now_s
            else:
                self.failed.append(answer)
            time.sleep(0.002)

    def write(self):
        good_s = time.monotonic()
        version = 0
        while time.monotonic() < self.end_s:
            version += 1
            keys = self.keys(version)
            values = [struct.pack("<Q", version).ljust(64, b".") for _ in keys]
            start_s = time.monotonic()
            code = (self.store.put_batch if self.mode == "put" else self.store.upsert_batch)(keys, values)
            now_s = time.monotonic()
            self.calls += 1
            self.longest_call_s = max(self.longest_call_s, now_s - start_s)
            if code != 0:
                self.failed.append(code)
                continue
            self.good_s.append(now_s - start_s)
            self.answered_at_s.append(now_s)
            self.gap_s = max(self.gap_s, now_s - good_s)
            good_s = now_s
            self.acknowledged.update(dict.fromkeys(keys, version))
            if self.mode == "put" and version % 5 == 0:
                self.remove(keys[0])

    def keys(self, version):
        if self.mode == "put":
            return [f"t{self.number}-{version}-{i}" for i in range(BATCH)]
        share = UPSERT_KEYS // THREADS
        return [f"t{self.number}-{i}" for i in range(share)]

    def remove(self, key):
        if self.store.remove(key, True) == 0:
            self.acknowledged.pop(key)
            self.removed.add(key)
        else:
            self.acknowledged.pop(key)  # not known: neither way may be demanded


def existing(store, keys):
    """key -> 1, 0 or an error, repeated until there is no error."""
    found = {}
    for at in range(0, len(keys), BATCH):
        part = keys[at : at + BATCH]
        for _ in range(200):
            answers = store.batch_is_exist(part)
            if all(answer in (0, 1) for answer in answers):
                break
            time.sleep(0.1)
        found.update(zip(part, answers, strict=True))
    return found


def stale(store, acknowledged):
    """Keys whose value is older than the newest acknowledged one, or gone."""
    old = []
    keys = sorted(acknowledged)
    for at in range(0, len(keys), BATCH):
        part = keys[at : at + BATCH]
        for key, value in zip(part, store.get_batch(part), strict=True):
            if len(value) < 8 or struct.unpack("<Q", value[:8])[0] < acknowledged[key]:
                old.append(key)
    return old


def silence_s(writers):
    """The longest time without a good answer to any thread."""
    moments_s = sorted(moment_s for writer in writers for moment_s in writer.answered_at_s)
    return max(later_s - moment_s for moment_s, later_s in itertools.pairwise(moments_s))


def main():
    master, mode, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    store = connect(master)
    writers = [Writer(store, number, mode) for number in range(THREADS)]
    for writer in writers:
        writer.start()
    while not all(writer.acknowledged for writer in writers):
        time.sleep(0.01)
    print("ready", flush=True)
    for writer in writers:
        writer.end_s = time.monotonic() + seconds
    for writer in writers:
        writer.join()
    acknowledged = {key: version for writer in writers for key, version in writer.acknowledged.items()}
    removed = sorted(key for writer in writers for key in writer.removed)
    there = existing(store, sorted(acknowledged))
    back = [key for key, answer in existing(store, removed).items() if answer == 1]
    result = {
        "acknowledged": len(acknowledged),
        "lost": [key for key, answer in there.items() if answer != 1],
        "removed": len(removed),
        "back": back,
        "stale": stale(store, acknowledged) if mode == "upsert" else [],
        "failed": [writer.failed for writer in writers],
        "gap_s": max(writer.gap_s for writer in writers),
        "silence_s": silence_s(writers),
        "usual_call_s": statistics.median(took_s for writer in writers for took_s in writer.good_s),
        "longest_call_s": max(writer.longest_call_s for writer in writers),
    }
    print(json.dumps(result), flush=True)
    store.close()


main()
