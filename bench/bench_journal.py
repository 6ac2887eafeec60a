"""The journal without a network: encode, group commit into the in-memory store, decode and apply on a standby."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.rows import PER_SECOND, record
from leasehold.ha.events import Decided
from leasehold.index.index import Index
from leasehold.index.model import PutConfig, SegmentSpec
from leasehold.index.records import Record
from leasehold.index.settings import IndexSettings
from leasehold.journal.batch import (
    Renewal,
    UnloggedBatch,
    decode_explicit,
    decode_unlogged,
    encode_records,
    encode_unlogged,
)
from leasehold.journal.chain import Position
from leasehold.journal.committer import Committer
from leasehold.journal.fenced_writer import FencedWriter
from leasehold.mvcc.model import Put
from leasehold.mvcc.store import Store
from leasehold.testing.sim.script import Script

PUTS = 50_000
LEADER, EXPLICIT = b"/c/leader", b"/c/journal/explicit/"


def _timed(what: str, count: int, do: Callable[[], object]) -> None:
    start_s = time.perf_counter()
    do()
    took_s = time.perf_counter() - start_s
    print(f"{what:<58} {count / took_s:>12,.0f}/s  {took_s / count * 1e6:8.2f} us each")
    record(what, count / took_s, PER_SECOND)


def _records() -> list[Record]:
    """The records of a primary for `PUTS` puts."""
    index = Index(IndexSettings(), lambda n: 0)
    index.begin(0, 5)
    index.mounts.mount(0, b"c", SegmentSpec(b"s", "s", 1 << 40, PUTS * 4096, "h:1", "tcp"))
    for n in range(PUTS):
        key = b"prefix/object-%012d" % n
        index.puts.start(1, b"c", b"default", key, 4096, PutConfig())
        index.puts.end(2, b"c", b"default", key)
    return [record for _, record in index.log.take_outbox()]


def main() -> None:
    records = _records()
    count = len(records)
    _timed("encode records", count, lambda: encode_records(records))
    store = Store()
    store.put(Put(LEADER, b"me"))
    committer = Committer(EXPLICIT, FencedWriter(LEADER, store.revision), Position(), 3_000, 2)
    batches: list[bytes] = []

    def commit() -> None:
        for at in range(0, count, 1_000):
            committer.offer(records[at : at + 1_000])
            while not committer.idle:
                committer.finish(0)
                txn = committer.send(0)
                assert txn is not None
                batches.append(txn.success[0].value)  # type: ignore[union-attr] # it is a Put
                committer.answered(store.txn(txn))

    _timed("offer, pack, compress, commit under the fence, 1,000 a batch", count, commit)
    print(f"{'bytes in the store per record':<58} {sum(map(len, batches)) / count:>12.1f}")
    record("bytes in the store per record", sum(map(len, batches)) / count, "bytes")
    decoded: list[Record] = []

    def decode() -> None:
        for raw in batches:
            decoded.extend(decode_explicit(raw).records)

    _timed("standby: decode", count, decode)
    standby = Index(IndexSettings(), lambda n: 0)

    def apply() -> None:
        for n, each in enumerate(decoded, start=1):
            standby.apply(n, each)

    _timed("standby: apply", count, apply)
    renewals = tuple(Renewal(b"default", b"prefix/object-%012d" % n, 3 + 2 * n, 10_000 + n, 0) for n in range(10_000))
    raw = encode_unlogged(UnloggedBatch(5, 1, 1, 1, True, 3_000, 0, renewals))

    def renew() -> None:
        for one in decode_unlogged(raw).renewals:
            standby.apply_renewal(one.tenant, one.key, one.put_seq, one.lease_end_ms, one.soft_pin_end_ms)

    _timed("standby: decode and apply renewals", len(renewals), renew)
    print(f"{'bytes in the store per renewal':<58} {len(raw) / len(renewals):>12.1f}")
    record("bytes in the store per renewal", len(raw) / len(renewals), "bytes")
    _machine()


def _machine() -> None:
    """The cost of the event for decided commands, with nothing to commit."""
    script = Script()
    script.run("nodes 2")
    run = script.world.nodes[0].run
    assert run is not None
    now_ms, machine = run.node.now_ms(), run.machine

    def decide() -> None:
        for _ in range(100_000):
            machine.handle(now_ms, Decided())

    _timed("machine.handle(Decided), idle primary", 100_000, decide)


if __name__ == "__main__":
    main()
