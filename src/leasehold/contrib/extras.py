"""The error for an adapter whose framework is not installed."""

from __future__ import annotations

import importlib.util


def require(package: str, extra: str, module: str) -> None:
    """Raise an `ImportError` that names the extra, unless `package` is installed."""
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"{module} needs the package '{package}': pip install 'leasehold[{extra}]'")
