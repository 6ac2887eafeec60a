"""Clusters of real nodes over real stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup


@pytest.fixture
def pair(etcd: EtcdCluster, tmp_path: Path) -> Iterator[NodeGroup]:
    """A primary and a hot standby over a real etcd."""
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path) as nodes:
        yield nodes
