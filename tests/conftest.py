"""What every test may use: real servers, shared by the session."""

import pytest
from hypothesis import HealthCheck, settings

# Examples are the same in every run, and how long one takes is no matter: a busy machine must not make a test fail.
settings.register_profile(
    "leasehold", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("leasehold")

pytest_plugins = ["leasehold.testing.pytest_plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write transcripts anew, with what comes of them now")
