"""Any bytes that a peer sends as text come back as they were, and on the way are a string that every encoder takes."""

from __future__ import annotations

import random

import msgspec
import pytest

from leasehold.wire.body import pack, unpack
from leasehold.wire.errors import NotEncodable
from leasehold.wire.schema import TEXT
from leasehold.wire.text import decode_text, encode_text

PIECES = ["a", "é", "€", "😀", "\U0010ff80", "\U0010ffff", "\U0010ff7f", "\U0010ff00"]
PRIVATE = "\U0010ff80".encode()
ODD = [
    b"",
    b"\x80",
    b"\xff",
    b"\xed\xb2\x80",
    b"\xf4\x90\x80\x80",
    b"\xc3",
    b"e\xcc\x81",
    PRIVATE,
    PRIVATE[:3],
    PRIVATE[1:],
]


def mixed(chance: random.Random) -> bytes:
    """Characters of all kinds, and bytes that are none between them."""
    return b"".join(
        chance.choice(PIECES).encode() if chance.random() < 0.7 else chance.randbytes(chance.randrange(4))
        for _ in range(chance.randrange(8))
    )


def test_any_bytes_survive_and_are_encodable_between() -> None:
    chance = random.Random(7)
    raws = ODD + [mixed(chance) for _ in range(20_000)]
    texts = [decode_text(raw) for raw in raws]
    assert [encode_text(text) for text in texts] == raws  # so no two of them have become one
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(texts)) == texts
    assert msgspec.json.decode(msgspec.json.encode(texts)) == texts


def test_valid_text_is_unchanged() -> None:
    for text in ("node-7:12345", "kräftig", "节点", "😀", "\U0010ff7f"):
        assert decode_text(text.encode()) == text
        assert encode_text(text) == text.encode()


def test_a_name_as_the_file_system_gives_it_goes_as_its_bytes() -> None:
    assert encode_text("disk-\udcff") == b"disk-\xff"


def test_invalid_text_is_named() -> None:
    with pytest.raises(NotEncodable, match="is no text"):
        pack(TEXT, "\ud800")
    assert unpack(TEXT, pack(TEXT, decode_text(b"\xff\xfe"))) == decode_text(b"\xff\xfe")
