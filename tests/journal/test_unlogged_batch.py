"""An unlogged batch fits its limit, however long the keys are."""

from __future__ import annotations

from leasehold.base import limits
from leasehold.index import Index, IndexSettings, PutConfig, SegmentSpec
from leasehold.journal.batch import UnloggedBatch, encode_unlogged
from leasehold.journal.unlogged_batch import UnloggedQueue

KEYS = 40


def test_long_keys_are_spread_over_batches_and_only_the_last_is_complete() -> None:
    index = Index(IndexSettings(), lambda n: 0)
    index.begin(0, 5)
    index.mounts.mount(0, b"c", SegmentSpec(b"s", "s", 1 << 30, 1 << 20, "h:1", "tcp"))
    keys = [(b"%04d" % n) * (limits.key_bytes_max // 4) for n in range(KEYS)]
    for key in keys:
        index.puts.start(0, b"c", b"t", key, 64, PutConfig())
        index.puts.end(0, b"c", b"t", key)
        assert index.reads.get(1, b"t", key) is not None
    queue = UnloggedQueue()
    sent: list[bytes] = []
    flags: list[bool] = []
    while not flags or not flags[-1]:
        renewals, hints, complete = queue.next_batch(index)
        raw = encode_unlogged(UnloggedBatch(5, 1, 1, 1, complete, 3_000, 0, renewals, hints), version=1)
        assert len(raw) <= limits.journal_batch_bytes_max
        sent += [one.key for one in renewals]
        flags.append(complete)
    assert sorted(sent) == sorted(keys)
    assert len(flags) == KEYS * limits.key_bytes_max // limits.unlogged_bytes_max + 1
