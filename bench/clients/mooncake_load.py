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
    """name -> (how many items a call is, call). Puts are removed in between, unmeasured."""
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


def measure(store, name, size, seconds):
    if name == "remove":
        keys = [f"gone-{number:016d}" for number in range(2000)]
        for at in range(0, len(keys), 500):
            store.put_batch(keys[at : at + 500], [VALUE] * 500)
        start = time.perf_counter()
        for key in keys:
            store.remove(key)
        return len(keys), time.perf_counter() - start
    call, count = operations(store, size)[name], 0
    call()
    start = time.perf_counter()
    end = start + seconds
    while time.perf_counter() < end:
        for _ in range(20 if size == 1 else 2):
            call()
            count += size
    took = time.perf_counter() - start
    if name.startswith("put"):
        store.remove_by_regex("^fresh-", True)
    return count, took


def main():
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 256 << 20, 64 << 20, "tcp", "", sys.argv[1])
    store.put_batch(KEYS, [VALUE] * len(KEYS))
    print("ready", code, flush=True)
    for line in sys.stdin:
        name, size, seconds = line.rsplit(maxsplit=2)
        count, took = measure(store, name, int(size), float(seconds))
        print(count, took, flush=True)
    store.close()


main()
