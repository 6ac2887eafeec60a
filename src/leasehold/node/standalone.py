"""A master without journal and without standby: the index on the wire, in one process, for measuring and for tests.

    python -m leasehold.node.standalone --rpc 127.0.0.1:50051 [--rpc-compat 0.3.12=127.0.0.1:50052]

It measures the wire and the index alone. Acknowledged data is lost when the process stops.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import random
import signal
from collections.abc import Sequence

import uvloop

from leasehold.base.units import parse_duration_ms
from leasehold.coord.connect import connect
from leasehold.ha.outbox import Outbox
from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.node.service.functions import MasterService
from leasehold.node.service.metadata_owners import OwnerCheck, Pings
from leasehold.node.service.metadata_server import MetadataServer
from leasehold.node.service.metadata_table import MetadataTable
from leasehold.node.service.storage_hosts import StorageHosts
from leasehold.runtime.clock import BootClock
from leasehold.runtime.secret_file import secrets_in
from leasehold.wire.finder import Address, parse_address
from leasehold.wire.server import Server, listen
from leasehold.wire.tables import NEWEST, Release, find_release

_WORK_EVERY_S = 0.05


class Standalone:
    """See the module. `ports` are (release, address) pairs; port 0 takes a free one."""

    def __init__(
        self,
        ports: Sequence[tuple[Release, Address]],
        settings: IndexSettings | None = None,
        hosts: StorageHosts | None = None,
    ) -> None:
        self._clock = BootClock()
        self.index = Index(settings or IndexSettings(), random.Random().randrange)
        self.index.begin(self._clock.now_ms(), 1)
        self._flushing = False
        self._flush()
        serving = Serving(self.index, Outbox.always_open())
        serving.report_to(self._decided)
        self.server = Server(serving.outbox)
        self._loop = asyncio.get_running_loop()
        for release, (host, port) in ports:
            self.server.serve(listen(host, port), MasterService(serving, release, hosts=hosts).handlers(), release)
        self._timer: asyncio.Handle = self._loop.call_soon(self._work)

    def _decided(self) -> None:
        """Once in each turn of the loop, as a journal would."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Nothing is kept: every decided record counts as durable."""
        self._flushing = False
        self.index.log.take_outbox()
        self.index.log.durable(self.index.log.last_n)

    def _work(self) -> None:
        now_ms = self._clock.now_ms()
        more = self.index.work(now_ms)
        self._flush()
        self.index.take_renewals(1000)
        self.index.take_hints(1000)
        if more:
            self._timer = self._loop.call_soon(self._work)
        else:
            self._timer = self._loop.call_later(_WORK_EVERY_S, self._work)

    def close(self) -> None:
        self._timer.cancel()
        self.server.close()


async def serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    ports = [(NEWEST, parse_address(options.rpc))]
    for entry in options.rpc_compat:
        name, _, address = entry.partition("=")
        ports.append((find_release(name), parse_address(address)))
    lease_ttl_ms, client_ttl_ms = parse_duration_ms(options.lease_ttl), parse_duration_ms(options.client_ttl)
    settings = IndexSettings(lease_ttl_ms=lease_ttl_ms, client_ttl_ms=client_ttl_ms)
    node = Standalone(ports, settings, StorageHosts(secrets_in(options.cluster_secret_file)))
    metadata = MetadataServer(MetadataTable(await connect("memory://"), b"metadata/"), OwnerCheck(_no_pings))
    if options.metadata:
        await metadata.start(listen(*parse_address(options.metadata)))
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    gc.freeze()
    await stopped.wait()
    node.close()
    await metadata.close()


async def _no_pings(_: str) -> Pings:
    """Only a node knows who pings; here the registered address decides."""
    return Pings.NO_CLIENT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rpc", default="127.0.0.1:50051")
    parser.add_argument("--rpc-compat", action="append", default=[])
    parser.add_argument("--metadata", default="")
    parser.add_argument("--cluster-secret-file", default="")
    parser.add_argument("--lease-ttl", default="10s")
    parser.add_argument("--client-ttl", default="10s")
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
