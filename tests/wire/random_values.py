"""Values for any type of the wire, by chance."""

from __future__ import annotations

import random
import struct
from typing import Any

from leasehold.wire.schema import (
    BOOL,
    Bytes,
    Expected,
    Failed,
    Map,
    Opaque,
    Optional,
    Record,
    Scalar,
    Text,
    Tuple,
    Type,
    Variant,
    Vector,
)
from leasehold.wire.text import decode_text

LENGTHS = (0, 1, 1, 3, 3, 8, 20, 23, 300)


def random_value(type_: Type, chance: random.Random) -> Any:
    if type_ is BOOL:
        return chance.random() < 0.5
    if isinstance(type_, Scalar):
        return struct.unpack("<" + type_.layout, chance.randbytes(type_.size))[0]
    if isinstance(type_, Text):
        length = chance.choice(LENGTHS)
        return "x" * length if chance.random() < 0.7 else decode_text(chance.randbytes(length))
    if isinstance(type_, Bytes):
        return chance.randbytes(chance.choice(LENGTHS))
    if isinstance(type_, Opaque):
        return chance.randbytes(type_.size)
    if isinstance(type_, Vector):
        return [random_value(type_.element, chance) for _ in range(chance.choice((0, 1, 2, 9)))]
    if isinstance(type_, Map):
        return {random_value(type_.key, chance): random_value(type_.value, chance) for _ in range(3)}
    if isinstance(type_, Optional):
        return random_value(type_.inner, chance) if chance.random() < 0.5 else None
    if isinstance(type_, Variant):
        return random_value(chance.choice(type_.alternatives), chance)
    if isinstance(type_, Expected):
        return random_value(type_.inner, chance) if chance.random() < 0.7 else Failed(-704)
    if isinstance(type_, Tuple):
        return tuple(random_value(member, chance) for member in type_.members)
    if isinstance(type_, Record):
        return type_.cls(**{name: random_value(member, chance) for name, member in type_.fields.items()})
    return None
