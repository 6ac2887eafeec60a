"""Every parser that faces a network or a disk, in one table: how to call it, what it may raise, and good inputs.

A parser may refuse an input with one of its documented errors. Every other exception is a bug. Where a checksum would
refuse every mutated input, `seal` computes it again, so that the code behind it is reached.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import DecodeError
from hpack import Encoder as HeaderEncoder
from msgspec import Struct
from tests.wire.fuzz import corpus as wire_requests

from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import LeaseholdError
from leasehold.cache import wire_functions
from leasehold.etcd import codec
from leasehold.etcd.pb import rpc_pb2
from leasehold.events import messages as event_messages
from leasehold.events import protocol as event_protocol
from leasehold.events.follower import ResumeRequest
from leasehold.http2.frame_reader import FrameReader
from leasehold.http2.header_blocks import BlockReader
from leasehold.http2.header_codec import ProtocolBroken
from leasehold.index.changes import Change
from leasehold.index.index import Index
from leasehold.index.records import Remove
from leasehold.index.settings import IndexSettings
from leasehold.journal import batch
from leasehold.journal.snapshot_file import SnapshotTaker, load_snapshot
from leasehold.node.buffer import disk as disk_buffer
from leasehold.node.buffer.redis import _split as split_redis_entry
from leasehold.node.worker.snapshot_files import seal as seal_snapshot
from leasehold.node.worker.snapshot_files import unseal
from leasehold.pool.capability import Capability, Keyring, Right, Verifier, segment_key, sign
from leasehold.pool.frame import CAPABILITY_BYTES_MAX, REQUEST, pack_request
from leasehold.pool.frame import Operation as HostOperation
from leasehold.store.log_frames import Frames, encode_frame
from leasehold.store.server import convert
from leasehold.store.server.gateway.json_messages import BadJson, JsonValues, from_json
from leasehold.wire.body import unpack
from leasehold.wire.frame import REQUEST_HEAD_BYTES, ResponseReader, response
from leasehold.wire.tables import V0_3_13

SECRET = b"secret of the cluster"
SEGMENT = b"s" * 16


class Parser(Struct, frozen=True):
    """One row of the table."""

    name: str
    parse: Callable[[bytes], object]
    samples: Sequence[bytes]
    refuses_with: tuple[type[Exception], ...] = (LeaseholdError,)
    seal: Callable[[bytes], bytes] = bytes


def table() -> list[Parser]:
    chance = random.Random(1)
    requests = wire_requests(chance)
    txn = rpc_pb2.TxnRequest(
        compare=[rpc_pb2.Compare(key=b"k", create_revision=3)],
        success=[rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=b"k", value=b"v"))],
        failure=[rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=b"a", range_end=b"z", limit=3))],
    ).SerializeToString()
    watched = rpc_pb2.WatchResponse(watch_id=3, created=True).SerializeToString()
    removed = Remove(1, b"default", b"key", 0)
    explicit = batch.ExplicitBatch(9, 5, 8, 4, 3_000, 1, (removed, removed))
    encode = msgspec.msgpack.encode
    unlogged = batch.UnloggedBatch(9, 1, 5, 100, True, 3_000, 1)
    snapshot = _snapshot()
    event = _event_message()
    answer = event_protocol.encode(event_protocol.NotLeading())
    return [
        Parser("wire: requests", _wire_request, requests[:60]),
        Parser("wire: answers", _wire_answers, [response(7, b"x" * 40), response(1, b"") * 3]),
        Parser("http2: frames", _http2_frames, [_http2_sample()], (ProtocolBroken,)),
        Parser("http2: header blocks (HPACK)", _header_block, [_header_sample()], (ProtocolBroken,)),
        Parser("protobuf: requests to the store", _store_request, [txn]),
        Parser("protobuf: answers of etcd", _etcd_answer, [txn, watched]),
        Parser("JSON gateway", _gateway, _json_samples(), (BadJson, ValueError)),
        Parser("journal: batches", _explicit, [encode(explicit)], seal=_as_batch(batch.KIND_EXPLICIT)),
        Parser(
            "journal: unlogged batches",
            _unlogged,
            [msgspec.msgpack.encode(unlogged)],
            seal=_as_batch(batch.KIND_UNLOGGED),
        ),
        Parser("journal: damaged values", _explicit, [_as_batch(batch.KIND_EXPLICIT)(encode(explicit))]),
        Parser("snapshots", lambda raw: load_snapshot(raw, "c"), [snapshot]),
        Parser("snapshots: trailer", unseal, [snapshot + seal_snapshot(snapshot)]),
        Parser("buffer: disk", _disk_buffer, [disk_buffer._frame(5, b"batch") * 3]),
        Parser("buffer: redis", split_redis_entry, [(5).to_bytes(8, "big") + b"batch"]),
        Parser("store: log", _store_log, [encode_frame(1, ()) + encode_frame(2, ())]),
        Parser("cache: from clients", wire_functions.unpacked, [wire_functions.encode([])]),
        Parser("host: requests", _host_request, [_host_sample()]),
        Parser("events: requests", event_protocol.decode_request, [event_protocol.encode(ResumeRequest(3, 4))]),
        Parser("events: answers", event_protocol.decode_answer, [answer], UNDECODABLE),
        Parser("events: messages", event_messages.events_of, [event]),
    ]


# --- wire ---


def _wire_request(data: bytes) -> object:
    body = data[REQUEST_HEAD_BYTES:]
    found = 0
    for function in V0_3_13.functions.values():
        if function.request is not None:
            try:
                unpack(function.request, body)
                found += 1
            except LeaseholdError:
                continue
    return found


def _wire_answers(data: bytes) -> object:
    reader = ResponseReader(1 << 20)
    half = len(data) // 2
    return [*reader.feed(data[:half]), *reader.feed(data[half:])]


# --- http2 ---


def _http2_sample() -> bytes:
    block = _header_sample()
    return (
        len(block).to_bytes(3, "big")
        + b"\x01\x04\x00\x00\x00\x01"
        + block
        + b"\x00\x00\x04\x00\x01\x00\x00\x00\x01abcd"
    )


def _header_sample() -> bytes:
    fields = [(":method", "POST"), (":path", "/etcdserverpb.KV/Range"), ("te", "trailers"), ("x-custom", "v" * 60)]
    return bytes(HeaderEncoder().encode(fields))


def _http2_frames(data: bytes) -> object:
    blocks, taken = BlockReader(), []

    def take(kind: int, flags: int, stream: int, payload: bytes) -> None:
        taken.append(kind)
        if kind in (1, 9):
            blocks.take(kind, flags, stream, payload)

    reader = FrameReader(take)
    for at in range(0, len(data), 7):
        reader.feed(data[at : at + 7])
    return taken


def _header_block(data: bytes) -> object:
    blocks = BlockReader()
    return blocks.take(1, 4, 1, data), blocks.take(1, 4, 3, data)


# --- protobuf and JSON ---


def _store_request(data: bytes) -> object:
    return [
        _converted(data, rpc_pb2.TxnRequest, convert.to_txn),
        _converted(data, rpc_pb2.RangeRequest, convert.to_range),
        _converted(data, rpc_pb2.PutRequest, convert.to_put),
        _converted(data, rpc_pb2.DeleteRangeRequest, convert.to_delete),
    ]


def _etcd_answer(data: bytes) -> object:
    return [
        _converted(data, rpc_pb2.TxnResponse, codec.txn_result),
        _converted(data, rpc_pb2.RangeResponse, codec.range_result),
        _converted(data, rpc_pb2.WatchResponse, lambda found: [codec.event(each) for each in found.events]),
    ]


def _converted(data: bytes, kind: Any, convert: Callable[[Any], object]) -> object:
    """The same bytes are tried as several kinds of message: most are one of them at most."""
    try:
        return convert(kind.FromString(data))
    except (DecodeError, LeaseholdError):
        return None


def _json_samples() -> list[bytes]:
    put = {"key": "a2V5", "value": "dmFs", "lease": "12", "prev_kv": True}
    wishes: list[Any] = [put, {"compare": [{"result": "EQUAL", "target": "CREATE", "key": "aw=="}], "success": []}]
    return [json.dumps(each).encode() for each in wishes]


def _gateway(data: bytes) -> object:
    values = JsonValues()
    found = [*values.feed(data[: len(data) // 2]), *values.feed(data[len(data) // 2 :])]
    if rest := values.rest():
        found.append(rest)
    return [(from_json(rpc_pb2.PutRequest, text), from_json(rpc_pb2.TxnRequest, text)) for text in found]


# --- disks ---


def _as_batch(kind: int) -> Callable[[bytes], bytes]:
    return lambda body: batch._frame(kind, body[: batch._BODY_BYTES_MAX], 2)


def _explicit(raw: bytes) -> object:
    return batch.decode_explicit(raw)


def _unlogged(raw: bytes) -> object:
    return batch.decode_unlogged(raw)


def _snapshot() -> bytes:
    taker = SnapshotTaker(Index(IndexSettings(), random.Random(1).randrange), "c")
    parts = []
    while not taker.sliced:
        parts.append(taker.slice())
    while part := taker.quarantined():
        parts.append(part)
    parts.append(taker.keyless())
    return b"".join(parts)


def _disk_buffer(data: bytes) -> object:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return list(disk_buffer.read_frames(Path(file.name)))


def _store_log(data: bytes) -> object:
    frames = Frames(data)
    return list(frames), frames.torn, frames.next_whole()


# --- hosts and events ---


def _host_sample() -> bytes:
    given = Capability(Right.WRITE, 1, 4096, 100, 7, 1, 1)
    return pack_request(HostOperation.WRITE, 100, 4096, 1, 7, sign(segment_key(SECRET, SEGMENT, 1), given))


def _host_request(data: bytes) -> object:
    if len(data) < REQUEST.size:
        return None
    _, operation, _, capability_bytes, length, address, _, _ = REQUEST.unpack_from(data)
    capability = data[REQUEST.size :][: min(capability_bytes, CAPABILITY_BYTES_MAX)]
    verifier = Verifier(Keyring((SECRET,)), 60_000)
    verifier.lend(SEGMENT)
    verifier.mounted(1)
    right = Right.WRITE if operation % 2 else Right.READ
    return verifier.judge(0, right, address, length, capability)


def _event_message() -> bytes:
    encoder = event_messages.Encoder(event_messages.Style("backend"))
    change = Change(5, True, b"default", b"key", 5, b"")
    return encoder.changes(1, 2, 3, [change]).frames()[-1]
