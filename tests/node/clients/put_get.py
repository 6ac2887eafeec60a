"""Runs inside the wheel's own environment: put and get through a master, with a segment of its own.

    python put_get.py MASTER ROUNDS

Prints `ok N` after each good round. A failed call (the master was killed, say) is repeated: one fails for each
connection in the client's pool that died.
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

from __future__ import annotations

import sys
import time

from mooncake import store as mooncake

MIB = 1 << 20
TRIES = 50  # a bound for what would never work


def main():
    master, rounds = sys.argv[1], int(sys.argv[2])
    store = mooncake.MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", master)
    if code != 0:
        raise SystemExit(f"setup failed with {code}")
    for number in range(rounds):
        sys.stdin.readline()
        value = str(number).encode() * 1000
        code, got = 1, b""
        for _ in range(TRIES):
            code = code and store.put(f"real-{number}", value)
            got = got or store.get(f"real-{number}")
            if code == 0 and got == value:
                break
            time.sleep(0.05)
        print("ok" if code == 0 and got == value else f"put {code}, got {len(got)} bytes", number, flush=True)
    store.close()


main()
