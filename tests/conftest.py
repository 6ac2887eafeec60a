"""What every test may use: real servers, shared by the session."""

import pytest

pytest_plugins = ["leasehold.testing.pytest_plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write transcripts anew, with what comes of them now")
