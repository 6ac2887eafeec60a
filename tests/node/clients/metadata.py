"""Runs inside the wheel's own environment: a client that uses the HTTP metadata server, driven line by line.

    python metadata.py NAME METADATA_URL MASTER SEGMENT_MIB

Prints the result of `setup`, then one answer to each line of its input: `put PREFIX COUNT`, `get PREFIX COUNT`.
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

from __future__ import annotations

import sys

from mooncake import store as mooncake

MIB = 1 << 20


def value(key):
    return (key.encode() + b".") * 200


def main():
    name, url, master, segment_mib = sys.argv[1:]
    store = mooncake.MooncakeDistributedStore()
    code = store.setup(name, url, int(segment_mib) * MIB, 16 * MIB, "tcp", "", master)
    print(code, flush=True)
    for line in sys.stdin:
        verb, prefix, count = line.split()
        keys = [f"{prefix}{number}" for number in range(int(count))]
        if verb == "put":
            print(sum(store.put(key, value(key)) == 0 for key in keys), flush=True)
        else:
            print(sum(store.get(key) == value(key) for key in keys), flush=True)


main()
