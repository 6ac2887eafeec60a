"""A service that reads its configuration at every request, from its own memory.

It prints one line for each run of equal values: value, first seen, last seen, number of reads.
"""

from __future__ import annotations

import asyncio
import sys
import time

from leasehold.cache import Client


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


async def main(address: str, duration_s: float) -> None:
    async with Client(address) as cache:
        seen, first_ns, last_ns, reads = None, 0, 0, 0
        end = time.monotonic() + duration_s
        print("ready", flush=True)
        while time.monotonic() < end:
            sent_ns = now_ns()  # the value was current at some moment after this
            value = await cache.get(b"config/limit")
            if value != seen:
                if seen is not None:
                    print(seen.decode(), first_ns, last_ns, reads, flush=True)
                seen, first_ns, reads = value, sent_ns, 0
            last_ns, reads = sent_ns, reads + 1
            await asyncio.sleep(0)  # the rest of the service's work
        print((seen or b"-").decode(), first_ns, last_ns, reads, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
