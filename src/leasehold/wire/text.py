"""Text fields from peers that may send any bytes: like the C++ master, we return the same bytes.

Records, snapshots, JSON, metrics and logs accept only UTF-8. So a byte that is not part of a valid character is
represented by a character of a private range, which every encoder accepts. The few real characters of that range are
escaped too, byte by byte: different strings stay different, and each is returned unchanged.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = 0x10FF00  # the byte 0x80 becomes U+10FF80, 0xFF as U+10FFFF
_SURROGATE: Final = 0xDC00  # where Python's own escape puts a byte; such a string cannot be encoded
_TO_ESCAPE: Final = re.compile("[\udc80-\udcff\U0010ff80-\U0010ffff]")
_ESCAPED: Final = re.compile("[\U0010ff80-\U0010ffff]")


def decode_text(raw: bytes) -> str:
    """`raw` as a string that can always be encoded; `encode_text` returns `raw` again."""
    text = raw.decode("utf-8", "surrogateescape")
    return text if text.isascii() else escaped(text)


def escaped(text: str) -> str:
    """The second half of `decode_text`, for code that has inlined the first half."""
    return _TO_ESCAPE.sub(_escape, text)


def encode_text(text: str) -> bytes:
    """The inverse of `decode_text`; raises UnicodeEncodeError for a string that it cannot have returned."""
    if not text.isascii():
        text = _ESCAPED.sub(lambda found: chr(ord(found[0]) - _ESCAPE + _SURROGATE), text)
    return text.encode("utf-8", "surrogateescape")


def _escape(found: re.Match[str]) -> str:
    return "".join([chr(_ESCAPE + byte) for byte in found[0].encode("utf-8", "surrogateescape")])
