"""Frames out of bytes, however they come: what the served store and the client of a cluster both read with."""

from __future__ import annotations

import random

import pytest

from leasehold.http2 import frame_reader as reading
from leasehold.http2.endpoint import FRAME_BYTES_MAX
from leasehold.http2.frame_reader import FrameReader
from leasehold.http2.frames import frame
from leasehold.http2.header_codec import ProtocolBroken

Frame = tuple[int, int, int, bytes]
FRAMES: list[Frame] = [
    (0, 1, 3, b"data"),
    (6, 0, 0, b"12345678"),
    (8, 0, 5, b""),
    (0, 0, 7, b"x" * 5_000),
    (1, 4, 9, b"h"),
]
BYTES = b"".join(frame(*one) for one in FRAMES)


def test_the_same_frames_however_they_are_cut() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        taken: list[Frame] = []
        reader = FrameReader(lambda *one, taken=taken: taken.append(one))
        place = 0
        while place < len(BYTES):
            size = chance.choice((1, 2, 9, 100, 6_000))
            reader.feed(BYTES[place : place + size])
            place += size
        assert taken == FRAMES, seed


def test_while_held_nothing_is_taken_and_nothing_is_lost() -> None:
    taken: list[Frame] = []

    def take(*one: int | bytes) -> None:
        taken.append(one)  # type: ignore[arg-type]  # as it is called
        reader.held = True

    reader = FrameReader(take)
    reader.feed(BYTES)
    for number in range(1, len(FRAMES) + 1):
        assert taken == FRAMES[:number]
        reader.feed(frame(*FRAMES[0])[:number] if number == 1 else b"")
        assert len(taken) == number, "held is held, also when more comes"
        reader.held = False
        reader.feed(b"")
    reader.held = False
    reader.feed(frame(*FRAMES[0])[1:])
    assert taken == [*FRAMES, FRAMES[0]]


def test_byte_by_byte_costs_no_object_a_byte() -> None:
    taken: list[Frame] = []
    reader = FrameReader(lambda *one: taken.append(one))
    whole = frame(0, 0, 1, b"y" * 10_000)
    for place in range(len(whole)):
        reader.feed(whole[place : place + 1])
        assert len(reader._rest) <= reading._PIECES_MAX
    assert taken == [(0, 0, 1, b"y" * 10_000)]


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    reader = FrameReader(lambda *_: None)
    with pytest.raises(ProtocolBroken, match="too long"):
        reader.feed(((FRAME_BYTES_MAX + 1) << 8).to_bytes(4) + bytes(5))
