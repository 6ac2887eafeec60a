"""Runs inside the wheel's own environment: put objects, and read those of clients of other releases.

    python share.py MASTER NAME COUNT

Prints `put N` when all are put. Then each line of its input is the name of another client, whose objects it reads:
`NAME N` good ones.
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

from __future__ import annotations

import sys

from mooncake import store as mooncake

MIB = 1 << 20


def value(name, number):
    return f"{name}-{number}.".encode() * 500


def main():
    master, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    store = mooncake.MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", master)
    if code != 0:
        raise SystemExit(f"setup failed with {code}")
    done = sum(store.put(f"{name}-{number}", value(name, number)) == 0 for number in range(count))
    print("put", done, flush=True)
    for line in sys.stdin:
        other = line.strip()
        keys = [f"{other}-{number}" for number in range(count)]
        single = sum(store.get(key) == value(other, number) for number, key in enumerate(keys))
        batch = sum(got == value(other, number) for number, got in enumerate(store.get_batch(keys)))
        print(other, min(single, batch), sum(store.batch_is_exist(keys)), flush=True)
    store.close()


main()
