"""Strings that people read, from peers that may send any bytes: as the C++ master, we give back what we were given.

What was read goes into records, snapshots, JSON, metrics and logs, and these take nothing but UTF-8. So a byte that is
no part of a character stands as a character of a private range, which every encoder takes. The few real characters of
that range are escaped as well, byte by byte: no two strings of a peer become one, and each comes back as it was.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = 0x10FF00  # the byte 0x80 stands as U+10FF80, 0xFF as U+10FFFF
_SURROGATE: Final = 0xDC00  # where Python's own escape puts a byte; such a string cannot be encoded
_TO_ESCAPE: Final = re.compile("[\udc80-\udcff\U0010ff80-\U0010ffff]")
_ESCAPED: Final = re.compile("[\U0010ff80-\U0010ffff]")


def decode_text(raw: bytes) -> str:
    """`raw` as a string that is sure to be encodable; `encode_text` gives `raw` again."""
    text = raw.decode("utf-8", "surrogateescape")
    return text if text.isascii() else escaped(text)


def escaped(text: str) -> str:
    """The second half of `decode_text`, for whoever has done the first in line."""
    return _TO_ESCAPE.sub(_escape, text)


def encode_text(text: str) -> bytes:
    """The bytes that `decode_text` has read, or those of a string of our own; raises UnicodeEncodeError."""
    if not text.isascii():
        text = _ESCAPED.sub(lambda found: chr(ord(found[0]) - _ESCAPE + _SURROGATE), text)
    return text.encode("utf-8", "surrogateescape")


def _escape(found: re.Match[str]) -> str:
    return "".join([chr(_ESCAPE + byte) for byte in found[0].encode("utf-8", "surrogateescape")])
