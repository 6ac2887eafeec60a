"""Runs inside the wheel's own environment: a storage client with a disk, which obeys commands on stdin.

    python offload.py MASTER

Commands, each answered with one line of JSON: `put FIRST COUNT` (codes), `kinds COUNT` (the replicas of each key, M for
memory and L for disk), `get COUNT` (which keys have the right bytes).
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

from __future__ import annotations

import json
import os
import sys

from mooncake.store import MooncakeDistributedStore

MIB = 1 << 20


def value(number):
    return bytes([number]) * (256 << 10)


def kind(replica):
    return "M" if replica.is_memory_replica() else "L" if replica.is_local_disk_replica() else "?"


def main():
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", sys.argv[1], None, True)
    print(json.dumps(code), flush=True)
    for line in sys.stdin:
        command, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if command == "put":
            first, count = numbers
            answer = [store.put(f"k{number}", value(number)) for number in range(first, first + count)]
        elif command == "kinds":
            found = store.batch_get_replica_desc([f"k{number}" for number in range(numbers[0])])
            answer = ["".join(map(kind, found.get(f"k{number}", []))) for number in range(numbers[0])]
        else:
            answer = [store.get(f"k{number}") == value(number) for number in range(numbers[0])]
        print(json.dumps(answer), flush=True)
    os._exit(0)  # as if it was killed: it takes nothing back


main()
