"""The journal for people: one line per record."""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec import Struct

TEXT_CHARACTERS_MAX = 80


def describe(record: Struct) -> str:
    """`PutEnd key=model/7 put_seq=12 ...`: the fields that differ from their defaults, in the record's order."""
    parts = [type(record).__name__]
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        if value != field.default and field.name != "at_ms":
            parts.append(f"{field.name}={plain(value)}")
    return " ".join(parts)


def plain(value: object) -> str:
    """A value in readable form: text as text, ids as hex, long values shortened."""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Struct):
        return "(" + ",".join(plain(part) for part in msgspec.structs.astuple(value)) + ")"
    if isinstance(value, tuple | list):
        shown = ",".join(plain(part) for part in value[:8])
        return f"[{shown},... {len(value)} in all]" if len(value) > 8 else f"[{shown}]"
    return str(value)


def _text(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw.hex()
    if not text.isprintable():
        return raw.hex()
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."
