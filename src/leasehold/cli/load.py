"""A little load for `leasehold up --load`: puts, reads and misses at a fixed rate, so that there is something to see.

python -m leasehold.cli.load 127.0.0.1:50051,127.0.0.1:50052
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections import deque
from typing import Final

from leasehold.base.errors import LeaseholdError
from leasehold.pool import Pool

INTERVAL_S: Final = 0.05  # 20 puts a second, about 2 MB: the pool fills within minutes, then evicts
SIZES: Final = (16 << 10, 64 << 10, 256 << 10)
READ_KEYS: Final = 20
RECENT_KEYS: Final = 2_000
ABSENT: Final = ["absent/1", "absent/2"]


async def run(masters: str) -> None:
    """Until cancelled. A call that fails during a failover is not repeated: the next one follows."""
    recent: deque[str] = deque(maxlen=RECENT_KEYS)
    number = random.getrandbits(32)  # the keys of an earlier run may still be there
    async with Pool(masters) as pool:
        while True:
            number += 1
            key = f"load/{number}"
            with contextlib.suppress(LeaseholdError):
                await pool.put(key, random.randbytes(random.choice(SIZES)))
                recent.append(key)
                chosen = random.choices(recent, k=READ_KEYS)
                await pool.client.batch_exist_key([*chosen, *ABSENT])
                await pool.get(chosen[0])
            await asyncio.sleep(INTERVAL_S)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
