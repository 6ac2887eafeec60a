"""The secrets of the cluster, read again when their file changes."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.base.cluster_secret import Secrets, parse_secrets
from leasehold.runtime.reloaded import Reloaded, read_small


def secrets_in(file: str) -> Callable[[], Secrets]:
    """A function that returns the present secrets of the file; none if `file` is empty."""
    if not file:
        return tuple
    return Reloaded([file], lambda: parse_secrets(read_small(file, "cluster_secret_file"), file)).value
