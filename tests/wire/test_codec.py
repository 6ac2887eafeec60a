"""The tables give the ids, literals and hashes of the real wheel; captured exchanges survive byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.wire.body import pack, type_hash, unpack
from leasehold.wire.errors import Malformed, NotEncodable
from leasehold.wire.frame import ResponseReader, request, response
from leasehold.wire.schema import BYTES, Type, Vector, size_literal
from leasehold.wire.tables import V0_3_12, V0_3_13, Function, releases_of

DATA = Path(__file__).parent / "data"


def table() -> list[list[str]]:
    lines = (DATA / "functions-0.3.13.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def exchanges() -> Iterator[tuple[Function, dict[str, object], dict[str, object]]]:
    """Every captured request with its response."""
    open_calls: dict[tuple[object, object], dict[str, object]] = {}
    for line in (DATA / "captures.jsonl").read_text().splitlines():
        item = json.loads(line)
        if "eof" in item:  # the end of a captured stream
            continue
        if item["d"] == "req":
            open_calls[item["c"], item["seq"]] = item
        else:
            sent = open_calls.pop((item["c"], item["seq"]))
            yield V0_3_13.by_id[sent["fid"]], sent, item  # type: ignore[index] # JSON
    assert not open_calls


def test_every_function_has_the_id_literals_and_hashes_of_the_wheel() -> None:
    assert len(table()) == 64
    assert {row[0] for row in table()} == set(V0_3_13.functions)
    for name, id_, request_literal, request_hash, response_literal, response_hash in table():
        function = V0_3_13.functions[name]
        assert f"0x{function.id:08x}" == id_, name
        if function.request is None:
            assert request_literal == "-"
        else:
            assert function.request.literal.hex() == request_literal, name
            assert f"0x{type_hash(function.request.literal) | 1:08x}" == request_hash, name
        assert function.returns.literal.hex() == response_literal, name
        assert f"0x{type_hash(function.returns.literal) | 1:08x}" == response_hash, name


def test_every_captured_exchange_survives_decoding_and_encoding() -> None:
    count = 0
    for function, sent, answered in exchanges():
        body = bytes.fromhex(str(sent["body"]))
        if function.request is None:
            assert body == b""
        else:
            assert pack(function.request, unpack(function.request, body)) == body, function
        frame = request(sent["seq"], function.id, body)  # type: ignore[arg-type] # JSON
        assert frame.hex() == str(sent["hdr"]) + str(sent["body"])
        body = bytes.fromhex(str(answered["body"]))
        assert pack(function.returns, unpack(function.returns, body)) == body, function
        frame = response(answered["seq"], body)  # type: ignore[arg-type] # JSON
        assert frame.hex() == str(answered["hdr"]) + str(answered["body"])
        count += 1
    assert count == 50


def test_a_put_of_an_older_release_is_recognised() -> None:
    old = V0_3_12.functions["PutStart"]
    assert old.request_hash == 0x6920EA5C
    assert releases_of(old.id, 0x6920EA5C) == ["0.3.12"]
    assert releases_of(old.id, 0xE385BD0E) == ["0.3.13"]
    assert releases_of(old.id, 0x12345678) == []


@pytest.mark.parametrize(("size", "meta"), [(3, 0x04), (255, 0x04), (256, 0x0C), (65535, 0x0C), (65536, 0x14)], ids=str)
def test_the_longest_length_chooses_the_width(size: int, meta: int) -> None:
    kind: Type = Vector(BYTES)
    for value in ([b"x" * size], [b""] * size):
        body = pack(kind, value)
        assert body[4] == meta
        assert unpack(kind, body) == value
        bare = pack(kind, value, literal=False)
        assert len(bare) == len(body) - len(kind.literal) - 1 - (meta == 0x04)
        assert unpack(kind, bare) == value


def test_every_truncation_of_every_capture_is_refused() -> None:
    for function, sent, _ in exchanges():
        body = bytes.fromhex(str(sent["body"]))
        for end in range(len(body)):
            if function.request is not None:
                with pytest.raises(Malformed):
                    unpack(function.request, body[:end])


def test_numbers_in_literals() -> None:
    assert size_literal(8) == b"\x89"
    assert size_literal(126) == b"\xff"
    assert size_literal(127) == b"\x01\x82"


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(NotEncodable):
        pack(V0_3_13.functions["Ping"].request or BYTES, b"short")


def test_responses_are_cut_from_any_split_of_the_stream() -> None:
    stream = b"".join(response(seq, bytes([seq]) * seq, attachment=b"a" * (seq % 3)) for seq in range(40))
    for step in (1, 7, 16, 100, len(stream)):
        reader = ResponseReader(frame_bytes_max=1000)
        found = [item for at in range(0, len(stream), step) for item in reader.feed(stream[at : at + step])]
        assert [item.seq for item in found] == list(range(40))
        assert all(item.body == bytes([item.seq]) * item.seq for item in found)
