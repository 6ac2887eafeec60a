"""Mutated frames for a port, and the properties that must hold for all of them.

Every connection carries a burst of damaged requests with good ones between them, whose answers are known. Each response
must answer one request of that connection, once; good requests must be answered correctly, and every complete request
must be answered: no reset, even if the last frame is broken and ends the connection.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

from tests.wire.random_values import random_value

from leasehold.wire.body import pack
from leasehold.wire.frame import REQUEST_HEAD_BYTES, Err, ResponseReader, request
from leasehold.wire.native import GET, PUT_START, UPSERT_START
from leasehold.wire.tables import RELEASES, V0_3_13

CAPTURES = Path(__file__).parent / "data" / "captures.jsonl"
EXIST = V0_3_13.functions["ExistKey"]
READY = V0_3_13.functions["ServiceReady"]
BURST = 60
FRAME_BYTES_MAX = 1 << 20


@dataclass
class Tally:
    """The requests that were sent, and their answers."""

    frames: int = 0
    answers: int = 0
    errors: dict[int, int] = field(default_factory=dict)
    closed: int = 0


def corpus(chance: random.Random) -> list[bytes]:
    """Good requests to damage: the captured ones, and some of every function of every release and of our own."""
    frames = []
    for line in CAPTURES.read_text().splitlines():
        item = json.loads(line)
        if item.get("d") == "req" and "fid" in item:
            frames.append(request(0, item["fid"], bytes.fromhex(item["body"])))
    for release in RELEASES.values():
        for function in release.functions.values():
            for _ in range(3):
                body = pack(function.request, random_value(function.request, chance)) if function.request else b""
                frames.append(request(0, function.id, body))
    for method in (GET, PUT_START, UPSERT_START):
        frames += [request(0, method.id, pack(method.request, random_value(method.request, chance))) for _ in range(3)]
    return frames


def with_seq(frame: bytes, seq: int) -> bytes:
    return frame[:4] + struct.pack("<I", seq) + frame[8:]


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """Damage a body and keep the frame whole: its length is right, so exactly one answer must come."""
    head, body = frame[:REQUEST_HEAD_BYTES], bytearray(frame[REQUEST_HEAD_BYTES:])
    for _ in range(chance.choice((1, 1, 2, 5))):
        how = chance.randrange(6)
        first = len(body) // 2 if chance.random() < 0.7 else 0  # behind hash and literal, or anywhere
        at = chance.randrange(first, len(body) + 1)
        if how == 0 and body:
            body[at % len(body)] = chance.randrange(256)
        elif how == 1 and body:
            body[at % len(body)] ^= 1 << chance.randrange(8)
        elif how == 2:
            del body[at:]
        elif how == 3:
            body[at:at] = chance.randbytes(chance.choice((1, 4, 40)))
        elif how == 4 and body:
            body[at : at + 4] = b"\xff\xff\xff\xff"
        else:
            del body[at : at + chance.choice((1, 2, 8))]
    head = head[:12] + struct.pack("<II", len(body), 0)
    if chance.random() < 0.03:
        head = head[:8] + chance.randbytes(4) + head[12:]
    return head + bytes(body)


def broken(frame: bytes, chance: random.Random) -> bytes:
    """Damage the header itself: the stream may end here, after the answers to all that came before."""
    at = chance.randrange(REQUEST_HEAD_BYTES)
    if 4 <= at < 8:
        at = 12
    return frame[:at] + bytes([chance.randrange(256)]) + frame[at + 1 :]


async def burst(port: int, frames: list[bytes], chance: random.Random, tally: Tally) -> None:
    """One connection: damaged frames with probes between, perhaps broken at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    cutter = ResponseReader(64 << 20)
    probes: dict[int, bytes] = {}
    sent: set[int] = set()
    out = bytearray()
    for seq in range(BURST):
        sent.add(seq)
        if seq % 10 == 9:
            there = chance.random() < 0.5
            assert EXIST.request is not None
            out += request(seq, EXIST.id, pack(EXIST.request, (b"here" if there else b"gone", b"probe")))
            probes[seq] = b"\x01\x01" if there else b"\x01\x00"
        else:
            out += with_seq(damaged(chance.choice(frames), chance), seq)
            tally.frames += 1
    ends_badly = chance.random() < 0.3
    if ends_badly:
        out += with_seq(broken(chance.choice(frames), chance), BURST)
        sent.add(BURST)
        tally.frames += 1
    step = chance.choice((*[len(out)] * 8, 1000, 37))  # in one piece, mostly
    for at in range(0, len(out), step):
        writer.write(out[at : at + step])
    answered: set[int] = set()
    whole = set(range(BURST))
    try:
        async with asyncio.timeout(60):
            while not whole <= answered:
                data = await reader.read(1 << 16)
                if not data:
                    break
                for item in cutter.feed(data):
                    assert item.seq in sent, "an answer without a request"
                    assert item.seq not in answered, "two answers to one request"
                    answered.add(item.seq)
                    if item.seq in probes:
                        assert item.err == Err.OK
                        assert item.body.endswith(probes[item.seq]), "another request's answer"
                    tally.errors[item.err] = tally.errors.get(item.err, 0) + 1
    finally:
        writer.close()
    tally.answers += len(answered)
    tally.closed += ends_badly
    assert whole <= answered, "a whole request was not answered"


async def fuzz(port: int, frames_wanted: int, seed: int) -> Tally:
    """Throw about `frames_wanted` frames at a port, over many connections, a few at a time."""
    chance, tally = random.Random(seed), Tally()
    frames = corpus(chance)
    while tally.frames < frames_wanted:
        await asyncio.gather(*(burst(port, frames, chance, tally) for _ in range(8)))
    return tally
