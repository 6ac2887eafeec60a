"""Runs inside the wheel's environment: load from the real client, one measurement for each line on stdin.

OPERATION SIZE SECONDS   ->   items per second, items
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

import sys
import time

from mooncake.store import MooncakeDistributedStore

KEYS = [f"bench-key-{number:013d}" for number in range(500)]
VALUE = b"x" * 64


def operations(store, size):
    """name -> a call of `size` items."""
    keys, made = KEYS[:size], [0]

    def fresh(count):
        made[0] += count
        return [f"fresh-{made[0] + number:015d}" for number in range(count)]

    return {
        "exist": lambda: store.is_exist(KEYS[0]),
        "batch exist": lambda: store.batch_is_exist(keys),
        "get": lambda: store.get(KEYS[0]),
        "batch get": lambda: store.get_batch(keys),
        "put": lambda: store.put(fresh(1)[0], VALUE),
        "put batch": lambda: store.put_batch(fresh(size), [VALUE] * size),
    }


GONE = [f"gone-{number:016d}" for number in range(2000)]


def prepare(store, name):
    """Create the objects that a measurement needs; not measured."""
    for at in range(0, len(GONE), 500) if name == "remove" else ():
        store.put_batch(GONE[at : at + 500], [VALUE] * 500)


def clean(store, name):
    """Remove the objects that a measurement has made; not measured."""
    if name.startswith("put"):
        store.remove_by_regex("^fresh-", True)


def measure(store, name, size, seconds):
    start = time.perf_counter()
    if name == "remove":
        for key in GONE:
            store.remove(key, True)
        return len(GONE), time.perf_counter() - start
    call, count = operations(store, size)[name], 0
    end = start + seconds
    while time.perf_counter() < end:
        for _ in range(20 if size == 1 else 2):
            call()
            count += size
    return count, time.perf_counter() - start


def main():
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 256 << 20, 64 << 20, "tcp", "", sys.argv[1])
    store.put_batch(KEYS, [VALUE] * len(KEYS))
    print("ready", code, flush=True)
    for line in sys.stdin:
        step, name, size, seconds = line.rstrip("\n").split(",")
        if step == "measure":
            print(*measure(store, name, int(size), float(seconds)), flush=True)
        else:
            {"prepare": prepare, "clean": clean}[step](store, name)
            print("done", flush=True)


main()
