"""Runs inside the wheel's own environment: lends a segment, writes objects and checks their bytes, by commands.

    python pool_user.py MASTER SEGMENT_MIB

Reads one command a line, and answers each with one line:

    fill PREFIX COUNT   puts objects of mixed sizes; answers the number of acknowledged ones
    trickle PREFIX      goes on putting objects until `halt`; answers `ok`
    halt                answers the number of acknowledged objects of the trickle
    read PREFIX COUNT   reads them; answers `right missing wrong`
    put KEY             puts one more object until it succeeds; answers the last code
"""

# mypy: ignore-errors
# (the wheel is not installed where this is checked)

from __future__ import annotations

import random
import sys
import threading
import time

from mooncake import store as mooncake

MIB = 1 << 20


def value_of(key: str) -> bytes:
    """Sizes that are mostly no multiples of 64, a third of them smaller than 512 bytes."""
    chance = random.Random(key)
    size = chance.randint(1, 511) if chance.random() < 0.33 else chance.randint(512, 6000)
    return chance.randbytes(size)


class Trickle:
    def __init__(self, store, prefix):
        self.store, self.prefix, self.count, self.on = store, prefix, 0, True
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while self.on:
            key = f"{self.prefix}-{self.count}"
            if self.store.put(key, value_of(key)) == 0:
                self.count += 1
            time.sleep(0.02)


def main():
    master, segment_mib = sys.argv[1], int(sys.argv[2])
    store = mooncake.MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", segment_mib * MIB, 16 * MIB, "tcp", "", master)
    print(code, flush=True)
    trickle = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == "fill":
            names = [f"{words[1]}-{number}" for number in range(int(words[2]))]
            answer = sum(store.put(name, value_of(name)) == 0 for name in names)
        elif words[0] == "trickle":
            trickle = Trickle(store, words[1])
            answer = "ok"
        elif words[0] == "halt":
            trickle.on = False
            trickle.thread.join()
            answer = trickle.count
        elif words[0] == "read":
            counts = [0, 0, 0]
            for number in range(int(words[2])):
                name = f"{words[1]}-{number}"
                got = store.get(name)
                counts[0 if got == value_of(name) else 1 if not got else 2] += 1
            answer = " ".join(map(str, counts))
        else:
            code = -1
            for _ in range(100):
                code = store.put(words[1], value_of(words[1]))
                if code == 0:
                    break
                time.sleep(0.1)
            answer = code
        print(answer, flush=True)


main()
