"""Runs inside the wheel's own environment: a small pool overflows, keys that were evicted are removed, then a failover.

    python evicted.py MASTER

Prints `full` when the pool is, `over` when more was put than it shall hold, and `ready` as soon as the removes are
answered (kill something then); after each it goes on when a line comes on stdin. At the end one line of JSON: how many
keys were evicted, how many of those removed, which of the removed ones are back, and how many of the others are (the
successor had not received their eviction yet: correct, and proof that the removes had work to do).
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

from __future__ import annotations

import json
import sys
import time

from mooncake import store as mooncake

MIB = 1 << 20
SEGMENT = 64 * MIB
VALUE = b"v" * (256 << 10)
FITS = int(SEGMENT * 0.48) // len(VALUE)  # eviction is set to start above 0.5
MORE = 10


def put(store, keys):
    codes = [store.put(key, VALUE) for key in keys]
    if any(codes):
        raise SystemExit(f"puts failed with {sorted(set(codes))}")


def existing(store, keys):
    """key -> 1 or 0, repeated until there is no error."""
    for _ in range(300):
        answers = store.batch_is_exist(keys)
        if all(answer in (0, 1) for answer in answers):
            break
        time.sleep(0.1)
    return dict(zip(keys, answers, strict=True))


def step(name):
    """Say how far we are, and wait for a line."""
    print(name, flush=True)
    sys.stdin.readline()


def main():
    store = mooncake.MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 16 * MIB, "tcp", "", sys.argv[1])
    if code != 0:
        raise SystemExit(f"setup failed with {code}")
    first = [f"first-{i}" for i in range(FITS)]
    put(store, first)
    step("full")
    put(store, [f"more-{i}" for i in range(MORE)])
    step("over")
    evicted = [key for key, there in existing(store, first).items() if there == 0]
    gone = evicted[::2]
    codes = [store.remove(key) for key in gone]
    step("ready")
    after = existing(store, evicted)
    result = {
        "evicted": len(evicted),
        "removed": len(gone),
        "codes": sorted(set(codes)),
        "back": [key for key in gone if after[key] != 0],
        "others_back": sum(after[key] for key in evicted if key not in set(gone)),
    }
    print(json.dumps(result), flush=True)
    store.close()


main()
