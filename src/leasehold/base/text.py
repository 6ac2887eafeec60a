"""Texts from outside, made safe to print."""

from __future__ import annotations

import re

# To the last @: an unescaped password may contain every other character of a URL.
_PASSWORD = re.compile(r"(://[^:@]*:).*@", re.DOTALL)


def without_password(url: str) -> str:
    """A URL without its password, for messages, logs and status."""
    return _PASSWORD.sub(r"\1***@", url)


def printable(text: str, characters_max: int = 1_000) -> str:
    """The text without characters that control a terminal or a log: each is replaced by a visible escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:characters_max])
