"""Settings about identities, shared by every command that listens on a port or connects to a node."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import text, texts


@dataclass(frozen=True)
class SecuritySettings:
    """Section `[security]`."""

    token_file: str = text(
        "", help="file with lines 'read NAME TOKEN' or 'operate NAME TOKEN' for the admin port; re-read when it changes"
    )
    allowed_hosts: tuple[str, ...] = texts(
        help="names under which the HTTP ports may be addressed, besides IP addresses, localhost and their own names"
    )
