"""Record the figures of a checkout whose benchmarks only print: `python before_json.py NAME FILE` in that checkout.

For commits up to fa642a5 and a little later; `bench/compare.py` runs it there. It imports that checkout's benchmark and
takes the figures before they are rounded for printing, under the names that the benchmarks have for them now.
"""

# mypy: ignore-errors
# (the modules that it imports are those of another commit)

import importlib
import json
import statistics
import sys

PER_SECOND = "1/s"
# In the order in which the benchmark measures them.
PROMOTION = (
    "read the snapshot",
    "promotion at the tail",
    "first steps after promotion",
    "promotion with a tail to read",
    "promotion with quarantined extents",
)


def index(bench, record):
    record("bytes per object", bench.bytes_per_object(500_000), "bytes")
    filled = bench.filled(1_000_000)
    for name, value in {**bench.hot_paths(filled, 1_000_000), **bench.eviction(filled, 400_000)}.items():
        if name == "evictions per second":
            record("evictions", value, PER_SECOND)
        elif name != "evicted":
            row, _, unit = name.rpartition(", ")
            record(row, value, unit)


def calls(bench, record):
    found, measure = [], bench.measure

    async def measured(address):
        found.append(await measure(address))
        return found[-1]

    bench.measure = measured
    bench.main()
    for what in found[-1]:  # the last two: without journal, with journal
        record(f"{what}, without journal", found[-2][what], "us")
        record(f"{what}, with journal", found[-1][what], "us")


def master(bench, record):
    def show(name, found, target):
        for number, which in ((1, "without journal"), (2, "with journal")):
            record(f"{name}, {which}", max(rate for rate, _ in found[number]), PER_SECOND)
            record(f"{name}, {which}, server CPU", min(cpu for _, cpu in found[number]) * 1e6, "us")

    bench.show = show
    bench.main()


def promotion(bench, record):
    for row, steps in zip(PROMOTION, bench.measure(1_000_000).values(), strict=True):
        record(f"{row}, total", steps.total_ms, "ms")
        record(f"{row}, longest step", steps.longest_ms, "ms")


def lock(bench, record):
    def report(rows, waiting):
        mine = rows["leasehold"]
        record("lock + unlock, alone", mine["alone_per_s"], PER_SECOND)
        record("lock + unlock, 8 contenders", mine["per_s"], PER_SECOND)
        record("hand-over, p50", mine["p50_ms"], "ms")
        record("hand-over, p99", mine["p99_ms"], "ms")
        for (who, count), took in waiting.items():
            if who == "leasehold":
                record(f"hand-over, {count} waiters", took.hand_over_ms, "ms")
                record(f"hand-over, {count} waiters, client CPU", took.client_cpu_ms, "ms")
                record(f"hand-over, {count} waiters, etcd CPU", took.etcd_cpu_ms, "ms")

    bench.report = report
    bench.main()


def store(bench, record):
    async def compare(title, ours, theirs):
        """As the original: both sides in turn, though only ours is recorded."""
        title = title.split()[0]
        for name, action in bench.ACTIONS.items():
            for in_flight in bench.FLIGHTS:
                for client in (ours, theirs):
                    await bench.rate(client, action, in_flight, 0.1)
                turns = []
                for _ in range(bench.TURNS):
                    turns.append(await bench.rate(ours, action, in_flight))
                    await bench.rate(theirs, action, in_flight)
                record(f"{title}: {name}, {in_flight} in flight", statistics.median(turns), PER_SECOND)
        record(f"{title}: put to event", await bench.watch_latency_ms(ours), "ms")
        await bench.watch_latency_ms(theirs)

    async def memory():
        async with await bench.leasehold.connect("memory://") as client:
            await bench.rate(client, bench.ACTIONS["txn"], 1, 0.2)
            turns = [await bench.rate(client, bench.ACTIONS["txn"], 1, 0.4) for _ in range(bench.TURNS)]
        record("memory: txn, 1 in flight", statistics.median(turns), PER_SECOND)

    bench.compare, bench._memory = compare, memory
    bench.main()


def main(name, file):
    rows = []

    def record(row, value, unit):
        rows.append({"bench": name, "row": row, "value": value, "unit": unit, "higher_is_better": unit == PER_SECOND})

    KNOWN[name](importlib.import_module(f"bench.bench_{name}"), record)
    with open(file, "w") as output:
        json.dump({"rows": rows}, output)


KNOWN = {each.__name__: each for each in (index, calls, master, promotion, lock, store)}

if __name__ == "__main__":
    sys.path.insert(0, "")  # the checkout in the working directory, not the folder of this file
    main(*sys.argv[1:])
