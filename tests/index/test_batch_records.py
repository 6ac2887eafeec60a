"""One record for the ends of a batch: decided in order, replayed by the slice of each key, only at level 1."""

from __future__ import annotations

from leasehold.base.codes import Code
from leasehold.base.limits import batch_record_keys_max
from leasehold.index.index import Index
from leasehold.index.model import PutConfig, SegmentSpec
from leasehold.index.records import PutEnd, PutEnds, Record
from leasehold.index.settings import IndexSettings
from leasehold.journal.snapshot_file import SnapshotTaker, load_snapshot

T = b"default"
WRITER = b"w" * 16
SPEC = SegmentSpec(b"s" * 16, "segment", 0x7F00_0000_0000, 1 << 30, "host:1", "tcp")


def leader(level: int = 1) -> Index:
    index = Index(IndexSettings(), lambda n: 0)
    index.begin(0, 1)
    if level:
        index.set_feature_level(0, level)
    index.mounts.mount(1, b"c" * 16, SPEC)
    return index


def start(index: Index, *keys: bytes) -> None:
    index.puts.start_many(2, WRITER, T, [(key, 1000, PutConfig()) for key in keys])


def ends_in(records: list[tuple[int, Record]]) -> list[Record]:
    return [record for _, record in records if isinstance(record, PutEnd | PutEnds)]


def test_plain_ends_share_a_record_and_others_have_their_own() -> None:
    index = leader()
    start(index, b"a", b"b", b"c")
    index.log.take_outbox()
    reply = index.puts.end_many(3, WRITER, T, [(b"a", None), (b"a", None), (b"absent", None), (b"b", 7), (b"c", None)])
    assert reply.value == [Code.OK, Code.OK, Code.NOT_FOUND, Code.OK, Code.OK]
    assert reply.after == index.log.last_n
    assert [type(record) for record in ends_in(index.log.take_outbox())] == [PutEnds, PutEnd, PutEnds]
    index.check()


def test_another_clients_put_is_not_ended() -> None:
    index = leader()
    start(index, b"a")
    assert index.puts.end_many(3, b"x" * 16, T, [(b"a", None)]).value == [Code.ILLEGAL_CLIENT]


def test_a_record_has_a_bounded_number_of_keys() -> None:
    index = leader()
    keys = [b"key-%d" % number for number in range(2 * batch_record_keys_max + 1)]
    start(index, *keys)
    index.puts.end_many(3, WRITER, T, [(key, None) for key in keys])
    ends = ends_in(index.log.take_outbox())
    assert [len(one.put_seqs) for one in ends if isinstance(one, PutEnds)] == [256, 256, 1]


def test_at_level_0_each_end_has_its_record() -> None:
    index = leader(level=0)
    start(index, b"a", b"b")
    index.puts.end_many(3, WRITER, T, [(b"a", None), (b"b", None)])
    assert [type(record) for record in ends_in(index.log.take_outbox())] == [PutEnd, PutEnd]


def test_replay_over_slices_before_and_after_the_record() -> None:
    """Half of the tables are saved before the ends, half after: each key is ended exactly once."""
    index = leader()
    keys = [b"key-%d" % number for number in range(64)]
    start(index, *keys)
    index.log.take_outbox()
    taker = SnapshotTaker(index, "c")
    raw = taker.slice(8192)
    index.puts.end_many(3, WRITER, T, [(key, None) for key in keys])
    index.removes.remove(4, T, keys[0], False)
    while not taker.sliced:
        raw += taker.slice()
    raw += taker.keyless()
    loaded = load_snapshot(raw, "c")
    follower = Index(IndexSettings(), lambda n: 0)
    follower.load(loaded.keyless, loaded.parts)
    for n, record in index.log.take_outbox():
        if n > follower.log.last_n:
            follower.apply(n, record)
    follower.check()
    assert follower.features.level == 1
    assert follower.digest() == index.digest()
    assert follower.catalog.readable_count == 63
