"""Header blocks: what another HPACK writes is read as it reads it, and garbage is refused in one way only."""

from __future__ import annotations

import random

import pytest
from hpack import Decoder, Encoder, HeaderTuple, NeverIndexedHeaderTuple
from hpack.exceptions import HPACKError

from leasehold.http2.header_codec import (
    BLOCK_KNOWN_BYTES_MAX,
    BLOCKS_KNOWN_MAX,
    TABLE_BYTES_MAX,
    HeaderReader,
    ProtocolBroken,
    literal,
    secret,
)

NAMES = [b":status", b"content-type", b"grpc-status", b"grpc-message", b"x", b"a-name-of-some-length", b"token"]


def some_text(rng: random.Random) -> bytes:
    size = rng.choice([0, 1, 3, 20, 126, 127, 128, 300, 3_000])
    return rng.randbytes(size) if rng.random() < 0.3 else bytes(rng.choices(b"abc012-/", k=size))


def some_headers(rng: random.Random, known: list[bytes]) -> list[HeaderTuple]:
    kinds = [HeaderTuple, HeaderTuple, NeverIndexedHeaderTuple]
    return [
        rng.choice(kinds)(
            rng.choice(NAMES) if rng.random() < 0.8 else some_text(rng) or b"n",
            rng.choice(known) if rng.random() < 0.6 else some_text(rng),
        )
        for _ in range(rng.randrange(12))
    ]


@pytest.mark.parametrize("seed", range(6))
def test_blocks_of_another_hpack(seed: int) -> None:
    """Tables of every size, changed between blocks; Huffman or not; headers that may and may not be kept."""
    rng = random.Random(seed)
    encoder, reader = Encoder(), HeaderReader()
    known = [some_text(rng) for _ in range(10)]
    before = [some_headers(rng, known)]
    for _ in range(60):
        if rng.random() < 0.2:
            for _ in range(rng.randrange(1, 3)):  # also smaller and then larger again: both are sent
                sizes = {0, 1, 40, 100, 1_000, TABLE_BYTES_MAX} - {encoder.header_table_size}
                encoder.header_table_size = rng.choice(sorted(sizes))
        headers = rng.choice(before) if rng.random() < 0.4 else some_headers(rng, known)
        before.append(headers)
        block = encoder.encode(headers, huffman=rng.random() < 0.7)
        assert reader.read(block) == [(bytes(name), bytes(value)) for name, value in headers]


@pytest.mark.parametrize("seed", range(6))
def test_garbage_is_read_as_another_hpack_reads_it_or_refused(seed: int) -> None:
    """Blocks with bytes changed, cut off and put together: never another error, and never something else."""
    rng = random.Random(seed)
    known = [some_text(rng) for _ in range(10)]
    for _ in range(40):
        other, reader, encoder = Decoder(max_header_list_size=1 << 30), HeaderReader(), Encoder()
        for _ in range(3):
            block = bytearray(encoder.encode(some_headers(rng, known)) if rng.random() < 0.8 else rng.randbytes(40))
            for _ in range(rng.choice([0, 0, 1, 3])):
                if block:
                    block[rng.randrange(len(block))] = rng.randrange(256)
            block = block[: rng.randrange(len(block) + 1)] if rng.random() < 0.2 else block
            try:
                expected = [(bytes(name), bytes(value)) for name, value in other.decode(bytes(block), raw=True)]
            except HPACKError:
                expected = None
            try:
                found = reader.read(bytes(block))
            except ProtocolBroken:
                assert expected is None
                break
            assert found == expected


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"\x80", "index 0"),
        (b"\xbe", "index 62"),  # the first of a table with nothing in it
        (b"\x7e\x01a", "index 62"),
        (b"\xff\xff\xff\xff\xff\xff\x0f", "too large"),
        (b"\x3f\xe2\x1f", "table of 4097 bytes"),
        (b"\x88\x20", "in the middle of a block"),
        (b"\x00\x7f", "in the middle"),
        (b"\x00\x05ab", "longer than its block"),
        (b"\x00\x01a\x81\x00", "text"),  # Huffman: filled up with zeros
        (b"\x00\x01a\x82\x1f\xff", "text"),  # with more than a byte
        (b"\x00\x01a\x84\xff\xff\xff\xff", "text"),  # the end of a string, which must not be written
    ],
)
def test_what_the_rules_forbid(block: bytes, why: str) -> None:
    with pytest.raises(ProtocolBroken, match=why):
        HeaderReader().read(block)


def test_an_entry_larger_than_the_table_empties_it() -> None:
    reader = HeaderReader()
    assert reader.read(b"\x40\x01a\x01b\xbe") == [(b"a", b"b")] * 2
    assert len(reader.read(b"\x40\x01c\x7f\x81\x1f" + bytes(4_096))) == 1
    with pytest.raises(ProtocolBroken, match="index 62"):
        reader.read(b"\xbe")


def test_a_block_that_comes_again_means_what_the_table_says_then() -> None:
    reader = HeaderReader()
    reader.read(b"\x40\x01a\x01b")
    assert [reader.read(b"\xbe") for _ in range(2)] == [[(b"a", b"b")]] * 2
    reader.read(b"\x40\x01c\x01d")
    assert [reader.read(b"\xbe") for _ in range(2)] == [[(b"c", b"d")]] * 2
    assert [reader.read(b"\x40\x01e\x01f\xbf") for _ in range(2)] == [
        [(b"e", b"f"), (b"c", b"d")],
        [(b"e", b"f"), (b"e", b"f")],
    ]
    reader.read(b"\x20")
    with pytest.raises(ProtocolBroken, match="index 62"):
        reader.read(b"\xbe")


def test_blocks_are_remembered_within_bounds_and_secrets_are_not() -> None:
    reader = HeaderReader()
    for number in range(5 * BLOCKS_KNOWN_MAX):
        reader.read(literal(b"n", b"%d" % number))
    assert 0 < len(reader._known) <= BLOCKS_KNOWN_MAX
    for block in (literal(b"n", b"v" * BLOCK_KNOWN_BYTES_MAX), secret(b"token", b"s")):
        reader.read(block)
        assert block not in reader._known


def test_what_we_write_another_hpack_reads() -> None:
    for size in (0, 1, 126, 127, 128, 254, 255, 256, 16_384):
        name, value = b"n" * max(1, size), b"v" * size
        for block in (literal(name, value), secret(name, value)):
            assert Decoder().decode(block, raw=True) == [(name, value)]
    [kept] = Decoder().decode(secret(b"token", b"s"), raw=True)
    assert not kept.indexable
