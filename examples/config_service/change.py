"""The operator: changes the configuration, and prints when each change was done."""

from __future__ import annotations

import sys
import time

from leasehold.cache import SyncClient


def main(address: str, changes: int) -> None:
    with SyncClient(address) as cache:
        for number in range(1, changes + 1):
            cache.put(b"config/limit", str(number).encode())
            print(number, time.clock_gettime_ns(time.CLOCK_BOOTTIME), flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
