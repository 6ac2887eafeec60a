"""`connect(url)` opens a client of any back end."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol

from leasehold.coord.api import Coord
from leasehold.coord.namespace import Namespaced
from leasehold.coord.url import ConnectOptions, CoordUrl, parse_url


class Opener(Protocol):
    """A back end's function that opens a client."""

    async def __call__(self, url: CoordUrl, options: ConnectOptions) -> Coord: ...


# Back ends are imported when used: a program on `memory://` does not load the client of a cluster.
OPENERS = {
    "etcd": "leasehold.etcd.client:open_etcd",
    "etcds": "leasehold.etcd.client:open_etcd",
    "memory": "leasehold.store.client:open_memory",
    "embedded": "leasehold.store.client:open_embedded",
}


async def connect(
    url: str,
    *,
    namespace: bytes | str = b"",
    timeout_s: float = 5.0,
    attempt_timeout_s: float = 1.0,
    user: str = "",
    password: str = "",
    ca: bytes | str | Path | None = None,
    cert: bytes | str | Path | None = None,
    key: bytes | str | Path | None = None,
    watch_queue_events_max: int = 20_000,
) -> Coord:
    """Open a client for the store at `url`. `leasehold.coord.url` lists the forms of addresses.

    It does not wait for the store: endpoints are contacted by the first call.
    """
    given = ConnectOptions(
        namespace=namespace.encode() if isinstance(namespace, str) else namespace,
        timeout_s=timeout_s,
        attempt_timeout_s=attempt_timeout_s,
        user=user,
        password=password,
        ca=ca,
        cert=cert,
        key=key,
        watch_queue_events_max=watch_queue_events_max,
    )
    address, options = parse_url(url, given)
    module, _, attribute = OPENERS[address.scheme].partition(":")
    opener: Opener = getattr(importlib.import_module(module), attribute)
    coord = await opener(address, options)
    return Namespaced(coord, options.namespace) if options.namespace else coord
