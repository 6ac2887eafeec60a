"""The format of Mooncake's publisher (docs/events.md), and the buffer from which subscribers resume."""

from __future__ import annotations

import msgspec
import pytest

from leasehold.events.follower import Follower, ResumeRequest
from leasehold.events.messages import Encoder, Reload, Removed, Stored, Style, events_of, seq_hash_of
from leasehold.events.protocol import decode_request, encode
from leasehold.events.stream import EventStream, MustReload, Resumed
from leasehold.index.changes import Change, Changes
from leasehold.index.model import Object

STORED = Change(3, True, b"default", b"0xff", 2, b"group")
# The keys of one event of the C++ publisher, with legacy fields and object keys on (its defaults).
THEIRS = {
    "event_id", "timestamp", "event_type", "type", "model_name", "block_size", "additional_salt", "lora_name",
    "tenant_id", "backend_id", "group_id", "medium", "dp_rank", "object_key", "seq_hashes", "block_hashes",
    "base_block_idx",
}  # fmt: skip


def test_a_stored_event_has_the_fields_of_mooncakes_publisher() -> None:
    message = Encoder(Style("pool")).changes(7, 5, 1, [STORED])
    assert message.frames()[:2] == [b"", b"\0\0\0\0\0\0\0\1"]
    time_ms, (event,), rank = msgspec.msgpack.decode(message.payload)
    assert (time_ms, rank) == (7, 0)
    assert set(event) == THEIRS | {"parent_hash", "token_ids", "parent_block_hash"} | {"epoch", "put"}
    assert event["type"] == "BlockStored"
    assert event["seq_hashes"] == event["block_hashes"] == [255]
    assert (event["object_key"], event["group_id"], event["medium"]) == ("0xff", "group", "cpu")
    assert event["base_block_idx"] == 0


def test_a_removed_event_has_the_fields_of_mooncakes_publisher() -> None:
    gone = msgspec.structs.replace(STORED, stored=False, key=b"18446744073709551615", group=b"")
    _, (event,), _ = msgspec.msgpack.decode(Encoder(Style("pool")).changes(7, 5, 1, [gone]).payload)
    assert set(event) == THEIRS | {"epoch", "put"}
    assert (event["event_type"], event["group_id"], event["base_block_idx"]) == ("removed", None, None)
    assert (event["seq_hashes"], event["block_hashes"]) == ([2**64 - 1], [-1])


def test_without_legacy_and_object_keys() -> None:
    encoder = Encoder(Style("pool", legacy=False, object_key=False))
    other = msgspec.structs.replace(STORED, key=b"name")
    _, events, _ = msgspec.msgpack.decode(encoder.changes(7, 5, 1, [STORED, other]).payload)
    assert len(events) == 1, "without object keys, a key that is no hash cannot be published"
    assert encoder.skipped == 1
    assert not {"type", "block_hashes", "object_key"} & set(events[0])


@pytest.mark.parametrize(
    ("key", "number"),
    [(b"12", 12), (b"0x1F", 31), (b"0Xg", None), (b"", None), (b"1_2", None), (b"-1", None), (b"%d" % 2**64, None)],
)
def test_keys_that_are_hashes(key: bytes, number: int | None) -> None:
    assert seq_hash_of(key) == number


def test_events_are_read_back_also_with_names_that_are_no_text() -> None:
    odd = Change(4, False, b"\xff", b"\xfe", 2, b"")
    encoder = Encoder(Style("pool"))
    assert events_of(encoder.changes(7, 5, 1, [STORED, odd]).payload) == (
        5,
        [Stored(b"default", b"0xff", 2), Removed(b"\xff", b"\xfe", 2)],
    )
    reload = Reload("why", 2**63, 8)
    assert events_of(encoder.reload(7, 5, 1, reload).payload) == (5, [reload])


def _object(put_seq: int) -> Object:
    key = b"k%d" % put_seq
    return Object(key, b"t", put_seq, put_seq, 1, b"", 0, visible=True)


def test_a_buffer_of_two_messages_lets_resume_or_requires_a_reload() -> None:
    changes, stream = Changes(100), EventStream(Encoder(Style("pool")), 2, 1 << 20)
    stream.begin(0, 5, changes)
    for put_seq in (1, 2, 3):
        changes.stored(_object(put_seq), put_seq)
        assert [each.count for each in stream.publish(0, put_seq, changes)] == [put_seq + 1]
    resumed = stream.resume(5, 2)
    assert isinstance(resumed, Resumed)
    assert [each.count for each in resumed.messages] == [3, 4]
    assert isinstance(stream.resume(5, 1), MustReload)
    assert isinstance(stream.resume(4, 2), MustReload)


def test_nothing_is_published_before_it_is_durable_and_dropped_events_require_a_reload() -> None:
    changes, stream = Changes(2), EventStream(Encoder(Style("pool")), 100, 1 << 20)
    stream.begin(0, 5, changes)
    for put_seq in (1, 2, 3):
        changes.stored(_object(put_seq), put_seq)
    assert stream.publish(0, 1, changes) == [], "what was dropped is not durable yet"
    reload, message = stream.publish(0, 3, changes)
    (event,) = events_of(reload.payload)[1]
    assert isinstance(event, Reload)
    assert event.objects == 2
    assert events_of(message.payload)[1] == [Stored(b"t", b"k3", 3)]
    assert changes.dropped_count == 2


def test_a_picture_with_the_leaders_fingerprint_needs_no_reload() -> None:
    changes, stream, follower = Changes(100), EventStream(Encoder(Style("pool")), 100, 1 << 20), Follower()
    follower.received(stream.begin(0, 5, changes))
    changes.stored(_object(1), 1)
    for message in stream.publish(0, 1, changes):
        follower.received(message)
    successor = EventStream(Encoder(Style("pool")), 100, 1 << 20)
    follower.received(successor.begin(0, 9, changes))
    assert (follower.epoch, follower.count, follower.loading) == (9, 1, False)
    changes.removed(_object(1), 1)
    stream.begin(0, 12, changes)
    follower.answered(stream.resume(9, 1))
    assert (follower.epoch, follower.loading) == (12, True)


def test_requests_are_read_back_and_others_ignored() -> None:
    assert decode_request(encode(ResumeRequest(1, 2))) == ResumeRequest(1, 2)
    assert decode_request(b"\xff") is None
    assert decode_request(b"\x81" * 10_000) is None
