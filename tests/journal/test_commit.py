"""Group commit under the fence, against the real store."""

from __future__ import annotations

from leasehold.index.records import PutEnd, Record
from leasehold.journal.batch import decode_explicit
from leasehold.journal.chain import Position
from leasehold.journal.committer import Committer
from leasehold.journal.fenced_writer import Fate, FencedWriter
from leasehold.mvcc.model import DeleteRange, Put, Range, Txn, TxnResult, prefix_end
from leasehold.mvcc.store import Store

LEADER, EXPLICIT = b"/c/leader", b"/c/journal/explicit/"


def records(count: int, size: int = 8) -> list[Record]:
    return [PutEnd(n, b"t", b"k" * size, n) for n in range(count)]


class Bench:
    """A committer, and the store that it writes to."""

    def __init__(self) -> None:
        self.store = Store()
        self.store.put(Put(LEADER, b"me"))
        self.epoch = self.store.revision
        self.committer = Committer(EXPLICIT, FencedWriter(LEADER, self.epoch), Position(), 3_000, 2)

    def send(self, now_ms: int = 0) -> Txn:
        self.committer.finish(0)
        return self.committer.send(now_ms)

    def execute(self, txn: Txn) -> TxnResult:
        return self.store.txn(txn)

    def stored(self) -> list[int]:
        kvs = self.store.range(Range(EXPLICIT, prefix_end(EXPLICIT))).kvs
        return [decode_explicit(kv.value).last_n for kv in kvs]


def test_what_comes_while_one_batch_is_in_flight_goes_into_the_next() -> None:
    bench = Bench()
    bench.committer.offer(records(3))
    txn = bench.send()
    bench.committer.offer(records(5))
    assert bench.committer.send(1) is txn  # nothing later is sent before it is decided
    assert bench.committer.answered(bench.execute(txn)) is Fate.WRITTEN
    assert bench.committer.durable == Position(bench.epoch, 3)
    assert bench.committer.answered(bench.execute(bench.send())) is Fate.WRITTEN
    assert bench.stored() == [3, 8]
    assert bench.committer.idle


def test_a_lost_answer_is_repeated_byte_for_byte_and_counts_from_the_first_send() -> None:
    """Schedule 18: the first attempt had landed; a successor may have seen it as early as that."""
    bench = Bench()
    bench.committer.offer(records(2))
    first = bench.send(100)
    bench.execute(first)  # its answer is lost
    bench.committer.offer(records(4))  # arrives meanwhile: must not get into the repeat
    again = bench.committer.writer.again(900)
    assert again.success == first.success
    assert bench.committer.answered(bench.execute(again)) is Fate.WRITTEN
    assert bench.committer.durable.n == 2
    assert bench.committer.writer.sent_ms == 100


def test_a_repeat_that_did_it_counts_from_its_own_send() -> None:
    bench = Bench()
    bench.committer.offer(records(2))
    bench.send(100)  # never arrives
    assert bench.committer.answered(bench.execute(bench.committer.writer.again(900))) is Fate.WRITTEN
    assert bench.committer.writer.sent_ms == 900


def test_a_deposed_leader_finds_out() -> None:
    bench = Bench()
    bench.committer.offer(records(1))
    txn = bench.send()
    bench.store.delete(DeleteRange(LEADER))
    bench.store.put(Put(LEADER, b"another"))
    assert bench.committer.answered(bench.execute(txn)) is Fate.DEPOSED
    assert bench.stored() == []
    assert bench.committer.durable == Position()


def test_foreign_bytes_in_a_slot_are_never_taken_for_ours() -> None:
    bench = Bench()
    bench.committer.offer(records(1))
    txn = bench.send()
    bench.store.put(Put(txn.compare[1].key, b"something else"))
    assert bench.committer.answered(bench.execute(txn)) is Fate.FOREIGN
    assert not bench.committer.idle


def test_batches_are_cut_by_bytes_and_by_count() -> None:
    bench = Bench()
    bench.committer.offer(records(40, size=60_000))
    sizes = []
    while not bench.committer.idle:
        txn = bench.send()
        put = txn.success[0]
        assert isinstance(put, Put)
        assert len(put.value) <= 1 << 20
        sizes.append(len(decode_explicit(put.value).records))
        bench.committer.answered(bench.execute(txn))
    assert sum(sizes) == 40
    assert len(sizes) >= 3
