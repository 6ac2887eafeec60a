"""An older release on a port and under a cluster name of its own: found by its view, also through a standby."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

from leasehold.coord.connect import connect
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.workload import Lender, Putter
from leasehold.wire.client import Client
from leasehold.wire.finder import MasterView
from leasehold.wire.tables import V0_3_12


def compat_address(node: NodeProcess) -> str:
    """The second port in the log line of the node."""
    found = re.search(r'"clients": \["[^"]+", "([^"]+)"\]', node.log_path.read_text())
    assert found is not None
    return found[1]


async def test_clients_of_two_releases_share_one_index(etcd: EtcdCluster, tmp_path: Path) -> None:
    name = uuid4().hex[:8]
    arguments = ["--rpc-compat", f"0.3.12=127.0.0.1:0,cluster=old{name}"]
    with NodeGroup(etcd.url, 2, cluster=f"new{name}", folder=tmp_path, arguments=arguments) as nodes:
        master = ",".join(nodes.addresses)
        async with Lender(master), await connect(etcd.url) as coord:
            putter = Putter(master, "k")
            await putter.put_batch(3)
            view = MasterView(coord, f"old{name}")
            assert "{}:{}".format(*await view.find()) == compat_address(nodes.primary())
            async with Client(view, release=V0_3_12) as old:
                assert await old.exist_key(putter.key(0))
            async with Client(compat_address(nodes.standbys()[0]), release=V0_3_12) as forwarded:
                assert await forwarded.exist_key(putter.key(1))
            nodes.primary().kill_worker()
            async with Client(view, release=V0_3_12, timeout_ms=20_000) as old:
                assert await old.exist_key(putter.key(2))
            putter.close()
