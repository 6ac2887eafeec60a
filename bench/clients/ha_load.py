"""Runs inside the wheel's environment: a real client of one cluster, one JSON command for each line on stdin.

    python ha_load.py MASTER

Every command is answered with one line of JSON. Commands: `measure` (a rate), `stock` (keys for removes), `burst`
(eight threads that write until `stop`), `stop`, `lost` (acknowledged keys of the burst that the master no longer has).
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

import itertools
import json
import sys
import threading
import time

from mooncake.store import MooncakeDistributedStore

MIB = 1 << 20
VALUE = b"x" * 1024
BASE = [f"base-{number:018d}" for number in range(512)]
BATCH = 500
BURST_THREADS, BURST_BATCH = 8, 100
ANSWER_S = 60.0
SETTLE_S = 3.0


class Load:
    def __init__(self, master):
        self.store = MooncakeDistributedStore()
        code = self.store.setup("127.0.0.1", "P2PHANDSHAKE", 1024 * MIB, 128 * MIB, "tcp", "", master)
        if code != 0:
            raise SystemExit(f"setup failed with {code}")
        self.number = itertools.count()
        self.keys = []  # written, and free to be removed
        self.writers = []
        self.going = False

    def fresh(self, count):
        run = next(self.number)
        return [f"k{run:010d}-{at:011d}" for at in range(count)]

    # --- what is measured: each returns the number of items that succeeded ---

    def put(self, size, thread):
        keys = self.fresh(1)
        if self.store.put(keys[0], VALUE) != 0:
            return 0
        self.keys.append(keys[0])
        return 1

    def put_batch(self, size, thread):
        keys = self.fresh(size)
        if self.store.put_batch(keys, [VALUE] * size) != 0:
            return 0
        self.keys += keys
        return size

    def upsert(self, size, thread):
        return int(self.store.upsert(BASE[thread], VALUE) == 0)

    def remove(self, size, thread):
        return int(self.store.remove(self.keys.pop(), True) == 0)

    def batch_remove(self, size, thread):
        keys = [self.keys.pop() for _ in range(size)]
        return self.store.batch_remove(keys, True).count(0)

    def exist(self, size, thread):
        return int(self.store.is_exist(BASE[thread]) == 1)

    def get(self, size, thread):
        return int(len(self.store.get(BASE[thread])) == len(VALUE))

    # --- commands ---

    def measure(self, name, size, threads, seconds):
        """Call it in `threads` threads for `seconds`, or until there is nothing left to remove."""
        call, done, failed = getattr(self, name), [0] * threads, [0] * threads
        barrier = threading.Barrier(threads + 1)
        left = threads * size if "remove" in name else 0

        def work(thread):
            barrier.wait()
            end_s = time.perf_counter() + seconds
            while time.perf_counter() < end_s and len(self.keys) >= left:
                good = call(size, thread)
                done[thread] += good
                failed[thread] += size - good

        workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
        for worker in workers:
            worker.start()
        barrier.wait()
        start_s = time.perf_counter()
        for worker in workers:
            worker.join()
        return {"items": sum(done), "seconds": time.perf_counter() - start_s, "failed": sum(failed)}

    def stock(self, count):
        """Make sure that there are `count` keys to remove, and the keys that reads and upserts use."""
        if 0 in self.answers(BASE):
            self.store.upsert_batch(BASE, [VALUE] * len(BASE))
        while len(self.keys) < count:
            self.put_batch(BATCH, 0)
        return {}

    def burst(self):
        self.going, self.writers = True, [Writer(self) for _ in range(BURST_THREADS)]
        for writer in self.writers:
            writer.start()
        while not all(writer.acknowledged for writer in self.writers):
            time.sleep(0.01)
        return {}

    def stop(self):
        self.going = False
        for writer in self.writers:
            writer.join()
        return {}

    def lost(self):
        """Count acknowledged keys that are absent; again after a while, because a new master may still be loading."""
        acknowledged = [key for writer in self.writers for key in writer.acknowledged]
        self.answers(acknowledged[:1])
        answered_s = time.monotonic()
        lost = self.absent(acknowledged)
        if lost:
            time.sleep(SETTLE_S)
            lost = self.absent(acknowledged)
        self.keys = []
        return {"acknowledged": len(acknowledged), "lost": lost, "answered_s": answered_s}

    def absent(self, keys):
        return sum(self.answers(keys[at : at + BATCH]).count(0) for at in range(0, len(keys), BATCH))

    def answers(self, keys):
        """1 or 0 for each key. Repeated while a new master is not ready for calls."""
        end_s = time.monotonic() + ANSWER_S
        while True:
            answers = self.store.batch_is_exist(keys)
            if all(answer in (0, 1) for answer in answers):
                return answers
            if time.monotonic() > end_s:
                raise SystemExit(f"no master answered within {ANSWER_S:g} s: {set(answers)}")
            time.sleep(0.02)


class Writer(threading.Thread):
    """Writes batches until the load stops or a call fails: then the master was killed."""

    def __init__(self, load):
        super().__init__(daemon=True)
        self.load = load
        self.acknowledged = []

    def run(self):
        while self.load.going:
            keys = self.load.fresh(BURST_BATCH)
            if self.load.store.put_batch(keys, [VALUE] * len(keys)) != 0:
                return
            self.acknowledged += keys


def main():
    load = Load(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(getattr(load, command.pop("do"))(**command)), flush=True)


main()
