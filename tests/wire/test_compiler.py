"""Readers made from the tables read what the reference codec reads, and refuse what it refuses."""

from __future__ import annotations

import random

import pytest
from tests.wire.random_values import random_value

from leasehold.wire.body import head, pack, unpack
from leasehold.wire.compiler import argument_reader, body_reader
from leasehold.wire.errors import Malformed
from leasehold.wire.schema import BOOL, Tuple, Type
from leasehold.wire.tables import RELEASES, Function

CASES = [
    pytest.param(function, id=f"{release.name} {function.name}")
    for release in RELEASES.values()
    for function in release.functions.values()
    if function.request is not None
]


def arguments(type_: Type, value: object) -> object:
    return value if isinstance(type_, Tuple) else (value,)


def plain(value: object) -> object:
    """Vectors may come as tuples: they are equal if their elements are."""
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("function", CASES)
def test_compiled_and_reference_agree(function: Function) -> None:
    assert function.request is not None
    chance = random.Random(function.id)
    read = argument_reader(function.request)
    for _ in range(15):
        value = random_value(function.request, chance)
        for literal in (True, False):
            body = pack(function.request, value, literal=literal)
            assert plain(read(body)) == plain(arguments(function.request, value))
            at = chance.randrange(len(body))
            mutated = body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]
            for damaged in (body[:at], mutated):
                try:
                    expected = arguments(function.request, unpack(function.request, damaged))
                except Malformed:
                    with pytest.raises(Malformed):
                        read(damaged)
                else:
                    assert plain(read(damaged)) == plain(expected)


@pytest.mark.parametrize("function", CASES)
def test_absurd_lengths_are_refused(function: Function) -> None:
    """Found by the fuzzer: a length beyond what an index can hold."""
    assert function.request is not None
    if function.request is BOOL:  # it has no length: RemoveAll of 0.3.11
        return
    read = argument_reader(function.request)
    for width in (2, 4, 8):
        with pytest.raises(Malformed):
            read(head(function.request, width, literal=False) + b"\xff" * 11)


@pytest.mark.parametrize("count", [1, 7, 8, 255, 256, 300, 1024, 1500])
@pytest.mark.parametrize("length", [0, 1, 23, 255, 256, 300])
def test_many_keys_of_one_length_and_of_nearly_one(count: int, length: int) -> None:
    kind = RELEASES["0.3.13"].functions["BatchExistKey"].request
    assert kind is not None
    read = argument_reader(kind)
    keys = [bytes([number % 256]) * length for number in range(count)]
    for uneven in (keys, [*keys[:-1], b"odd"], [b"odd", *keys[1:]]):
        values, tenant = read(pack(kind, (uneven, b"t")))
        assert (list(values), tenant) == (uneven, b"t")


def test_a_part_leaves_the_rest_where_it_begins() -> None:
    kind = RELEASES["0.3.13"].functions["Remove"].request
    assert kind is not None
    body = pack(kind, (b"key", True, b"tenant"))
    values, same, at, width = body_reader(kind, slice(0, 1))(body)
    assert (values, same, body[at:], width) == ((b"key",), body, b"\x01\x06tenant", 1)
