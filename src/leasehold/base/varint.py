"""Numbers as protobuf encodes them."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Seven bits in each byte, the lowest first. `number` is not negative."""
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
