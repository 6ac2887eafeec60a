"""Clusters of real nodes over real stores. Starting processes is what costs most here: a module shares a pair."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from leasehold.testing import mooncake
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup


@pytest.fixture(scope="module")
def shared_pair(etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    folder = tmp_path_factory.mktemp("nodes")
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=folder) as nodes:
        yield nodes


@pytest.fixture
def pair(shared_pair: NodeGroup) -> NodeGroup:
    """A primary and a ready standby over a real etcd; whatever the test before has killed is up again."""
    shared_pair.revive()
    return shared_pair


@pytest.fixture
def wheel() -> None:
    """The real Mooncake client must be there."""
    if (reason := mooncake.why_missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
