"""The parts of the test kit that need packages which running Leasehold does not: the extra `testing`."""

from __future__ import annotations

import importlib.util


def require(package: str, needed_by: str) -> None:
    """Raise an `ImportError` that names the extra, if `package` is not installed."""
    if importlib.util.find_spec(package) is None:
        raise ImportError(
            f"{needed_by} needs the package {package!r}, which is not installed: pip install 'leasehold[testing]'",
            name=package,
        )
