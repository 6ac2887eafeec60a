"""The bytes that the clients store. Standard library only: Mooncake's clients have environments of their own."""

from __future__ import annotations

from zlib import crc32


def value_of(key: str, version: str, size: int) -> bytes:
    """The bytes of a version: they name the key and the version, and every byte depends on both."""
    head = f"{key}={version};".encode()
    if len(head) > size:
        raise ValueError(f"a value of {size} bytes is too small for '{key}' and '{version}'")
    filler = b"%08x" % crc32(head)
    return (head + filler * (size // len(filler) + 1))[:size]


def version_in(key: str, value: bytes) -> str | None:
    """The version in these bytes; None if they are not a value of this key."""
    head, semicolon, _ = value.partition(b";")
    name, equals, version = head.decode(errors="replace").partition("=")
    if not semicolon or not equals or name != key or value != value_of(key, version, len(value)):
        return None
    return version
