"""Fixtures for all tests: real servers, shared by the session."""

import pytest
from hypothesis import HealthCheck, settings

# Examples are the same in every run, and how long one takes is no matter: a busy machine must not make a test fail.
settings.register_profile(
    "leasehold", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("leasehold")

pytest_plugins = ["leasehold.testing.pytest_plugin"]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Run tests that share processes on one xdist worker: otherwise every worker starts all of them."""
    if not getattr(session.config.option, "loadgroup", False):
        return
    for item in session.items:
        if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
            raise pytest.UsageError("pytest-xdist ignores xdist_group here: use the pytest that pyproject.toml names")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the transcripts with the current output")
