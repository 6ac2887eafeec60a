"""Put bytes into the pool and get them back, once a second, also during failovers.

    python examples/pool/put_get.py [HOST:PORT,HOST:PORT] [ROUNDS]

Against `leasehold up` no argument is needed. Kill the primary's worker while it runs: one line may take longer.
"""

from __future__ import annotations

import asyncio
import sys
import time

from leasehold.pool import Pool


async def main(master: str, rounds: int) -> None:
    async with Pool(master) as pool:
        for number in range(rounds):
            started_s = time.monotonic()
            await pool.put(f"tour/{number}", b"bytes" * 200, replicas=2, replace=True)
            got = await pool.get(f"tour/{number}") or b""
            print(
                f"tour/{number}: put and got {len(got)} bytes in {(time.monotonic() - started_s) * 1000:.0f} ms",
                flush=True,
            )
            await asyncio.sleep(1 if number + 1 < rounds else 0)


asyncio.run(main(sys.argv[1] if sys.argv[1:] else "127.0.0.1:50051,127.0.0.1:50052", int((sys.argv[2:] or ["30"])[0])))
