"""The limit of open files: a service is started with a shell's, which is made for people (1,024 is usual)."""

from __future__ import annotations

import resource


def raise_open_files() -> int:
    """Raise this process's limit (and that of what it starts) as far as it may; returns what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
