"""The limit of open files. A service often inherits the limit of a shell, usually 1,024, which is too low."""

from __future__ import annotations

import resource


def raise_open_files() -> int:
    """Raise the limit of this process (and of its future children) to the maximum; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
