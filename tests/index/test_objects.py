"""The small form of an object, and how it becomes the general one and back."""

from __future__ import annotations

import msgspec
import pytest
from tests.index.kit import KIB, WRITER, T, pair, primary, put

from leasehold.index import PutConfig
from leasehold.index.model import COMPLETE, PROCESSING, Replica
from leasehold.index.records import Record


def test_the_usual_object_is_one_struct() -> None:
    index = primary()
    reply = index.puts.start(0, WRITER, T, b"k", 4 * KIB, PutConfig())
    entry = reply.value
    assert entry is not None
    assert entry.draft is not None
    assert [replica.status for replica in entry.replicas] == [PROCESSING]
    index.puts.end(0, WRITER, T, b"k")
    assert entry.extra is None
    (replica,) = entry.replicas
    assert (replica.id, replica.claimed_n, replica.status) == (entry.put_seq << 4, entry.put_seq, COMPLETE)
    assert (replica.segment, replica.offset) == (entry.segment, entry.offset)


@pytest.mark.parametrize(
    "config", [PutConfig(group=b"g"), PutConfig(hard_pin=True), PutConfig(data_type=2), PutConfig(replicas=2)]
)
def test_rare_data_is_kept_beside(config: PutConfig) -> None:
    index = primary((64 * KIB, 64 * KIB))
    entry = put(index, 0, b"k", config=config)
    assert (entry.group, entry.hard_pin, entry.data_type) == (config.group, config.hard_pin, config.data_type)
    assert entry.replica_count == len(entry.replicas) == config.replicas
    assert {replica.status for replica in entry.replicas} == {COMPLETE}
    index.check()


def test_a_pin_and_other_replicas_come_and_go() -> None:
    index = primary((64 * KIB, 64 * KIB))
    entry = put(index, 0, b"k")
    own = entry.replicas[0]
    entry.set_soft_pin_end(7)
    assert entry.soft_pin_end == 7
    other = Replica(99 << 4, own.segment, 8 * KIB, COMPLETE)
    entry.set_replicas((own, other))
    assert entry.segment is None
    assert entry.replicas == (own, other)
    entry.set_replicas((own,))
    assert entry.segment is own.segment
    entry.set_soft_pin_end(0)
    assert entry.extra is None
    entry.set_replicas((other,))
    assert (entry.segment, entry.replicas) == (None, (other,))
    entry.set_replicas(())
    assert (entry.extra, entry.replica_count, entry.replicas) == (None, 0, ())


def test_objects_share_equal_values() -> None:
    """Each decoded record has its own copies, as on a standby."""
    index, standby = pair()
    put(index, 0, b"k1", 5_000)
    put(index, 0, b"k2", 5_000)
    for n, record in index.log.take_outbox():
        standby.apply(n, msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Record))
    first, second = standby.catalog.objects()
    assert (first.key, second.key) in ((b"k1", b"k2"), (b"k2", b"k1"))
    assert first.tenant is second.tenant
    assert first.client is second.client
    assert first.size is second.size
