"""Texts from outside, made safe to print."""

from __future__ import annotations


def printable(text: str, characters_max: int = 1_000) -> str:
    """The text without characters that control a terminal or a log: each is replaced by a visible escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:characters_max])
