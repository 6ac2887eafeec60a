"""Malformed requests are answered, or not, exactly as by the C++ master."""

from __future__ import annotations

import asyncio
import struct

from tests.wire.conftest import need

from leasehold.testing.mooncake import NEWEST, MooncakeMaster, StandaloneMaster
from leasehold.wire.body import pack
from leasehold.wire.frame import RESPONSE_HEAD, RESPONSE_HEAD_BYTES, request
from leasehold.wire.schema import UUID, Tuple
from leasehold.wire.tables import V0_3_13

EXIST = V0_3_13.functions["ExistKey"]
PING = V0_3_13.functions["Ping"]
assert EXIST.request is not None
GOOD = pack(EXIST.request, (b"k", b"default"))
LITERAL = EXIST.request.literal


def changed(frame: bytes, at: int, value: int) -> bytes:
    return frame[:at] + bytes([value]) + frame[at + 1 :]


def lengths(body_bytes: int, attachment_bytes: int) -> bytes:
    return struct.pack("<II", body_bytes, attachment_bytes)


FRAME = request(7, EXIST.id, GOOD)
CASES: dict[str, bytes] = {
    "good": FRAME,
    "hash only": request(7, EXIST.id, pack(EXIST.request, (b"k", b"default"), literal=False)),
    "unknown function": request(7, 0x12345678, GOOD),
    "another function's hash": request(7, PING.id, GOOD),
    "empty body": request(7, EXIST.id, b""),
    "three bytes": request(7, EXIST.id, GOOD[:3]),
    "hash without meta": request(7, EXIST.id, GOOD[:4]),
    "half a literal": request(7, EXIST.id, GOOD[:8]),
    "no payload": request(7, EXIST.id, GOOD[: 6 + len(LITERAL)]),
    "short payload": request(7, EXIST.id, GOOD[:-1]),
    "wrong literal": request(7, EXIST.id, changed(GOOD, 5, 0xFC)),
    "literal without its end": request(7, EXIST.id, changed(GOOD, 5 + len(LITERAL), 1)),
    "wrong hash": request(7, EXIST.id, changed(GOOD, 0, 0xDB)),
    "length beyond the end": request(7, EXIST.id, changed(GOOD, 6 + len(LITERAL), 250)),
    "trailing bytes": request(7, EXIST.id, GOOD + b"more"),
    "attachment": FRAME[:12] + lengths(len(GOOD), 3) + GOOD + b"abc",
    "body where none is wanted": request(7, V0_3_13.functions["ServiceReady"].id, b"anything"),
    "message type 1": changed(FRAME, 3, 1),
    "wrong magic": changed(FRAME, 0, 0x16),
    "version 1": changed(FRAME, 1, 1),
    "serialize type 1": changed(FRAME, 2, 1),
    "wider lengths": request(7, EXIST.id, pack(EXIST.request, (b"k" * 300, b"default"))),
    "single argument in a struct": request(7, PING.id, pack(Tuple((UUID,)), (b"c" * 16,))),
}


async def answer(port: int, frame: bytes) -> str:
    """The outcome: a result, an error and its message, or the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame)
    try:
        async with asyncio.timeout(60):
            header = await reader.readexactly(RESPONSE_HEAD_BYTES)
            _, _, err, kind, seq, body_bytes, _ = RESPONSE_HEAD.unpack(header)
            body = await reader.readexactly(body_bytes)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return "closed"
    finally:
        writer.close()
    return f"err {err}, kind {kind}, seq {seq}" + (f", {body[-24:]!r}" if err else f", {body[-1:]!r}")


async def test_bad_frames_are_taken_as_by_the_real_master() -> None:
    need(NEWEST)
    with MooncakeMaster() as theirs, StandaloneMaster() as ours:
        expected = {name: await answer(theirs.rpc_port, frame) for name, frame in CASES.items()}
        found = {name: await answer(ours.rpc_port, frame) for name, frame in CASES.items()}
    assert found == expected
