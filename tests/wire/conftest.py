"""Real Mooncake processes, shared by the tests of a session; where the wheel is missing, tests say so by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from leasehold.testing import mooncake


def need(version: str) -> None:
    if (reason := mooncake.why_missing(version)) is not None:
        pytest.skip(f"NOT TESTED against the real Mooncake: {reason}")


@pytest.fixture
def real_mooncake() -> Callable[[str], None]:
    """Call it with a release: the test is left out, loudly, if that release is not available."""
    return need


@pytest.fixture(scope="session")
def own_master() -> Iterator[mooncake.StandaloneMaster]:
    with mooncake.StandaloneMaster("--lease-ttl", "60s") as master:
        yield master
