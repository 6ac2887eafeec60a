"""Whose entries of the metadata table are whose, and whether their owner is alive.

A transfer engine called NAME writes two keys: `mooncake/rpc_meta/NAME`, the address where it accepts handshakes, and
`mooncake/ram/NAME`, its registered memory. Segments that it lends have NAME as their name and endpoint. With
MC_METADATA_CLUSTER_ID there is a further part after `mooncake/`.

The owner of NAME is alive if its address accepts a connection, or if the client that lends segments of that name
pings. The second is known to the primary alone: it remembers on which connection a client pinged last. The kernel
closes the connections of a killed process, so a restarted one need not wait for the client TTL of its predecessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from leasehold.base.decoding import UNDECODABLE
from leasehold.index.index import Index
from leasehold.wire.connection import Connection
from leasehold.wire.native import OWNER_PINGS, OwnerAnswer
from leasehold.wire.rpc import implement
from leasehold.wire.server import Handler

CONNECT_TIMEOUT_S: Final = 0.5
PING_WAIT_S: Final = 2.0  # clients ping every second, and Mooncake's HTTP client waits for 3 s
_PING_POLL_S: Final = 0.05
_FORGET_FROM: Final = 1_024
_RPC_META: Final = "rpc_meta/"
_RAM: Final = "ram/"


class Registration(NamedTuple):
    """The two keys of one transfer engine."""

    name: str
    rpc_key: str
    ram_key: str


def registration_of(key: str) -> Registration | None:
    """The registration that a key of the table belongs to, if it is one of the two."""
    for part in (_RPC_META, _RAM):
        prefix, found, name = key.partition(part)
        if found and name and prefix.endswith("/"):
            return Registration(name, f"{prefix}{_RPC_META}{name}", f"{prefix}{_RAM}{name}")
    return None


class _RpcMeta(msgspec.Struct):
    ip_or_host_name: str
    rpc_port: int


def address_of(rpc_meta: bytes) -> tuple[str, int] | None:
    """The address in the value of an `rpc_meta` key."""
    try:
        meta = msgspec.json.decode(rpc_meta, type=_RpcMeta)
    except UNDECODABLE:
        return None
    return (meta.ip_or_host_name.strip("[]"), meta.rpc_port) if 0 < meta.rpc_port < 65536 else None


class Probe(IntEnum):
    """The outcome of an attempt to connect."""

    ACCEPTED = 0
    REFUSED = 1  # its host is up, and nothing listens there
    SILENT = 2  # no answer: the host is down or cannot be reached from here


async def probe(address: tuple[str, int] | None) -> Probe:
    """Try to connect. Without an address there is nothing to connect to: refused."""
    if address is None:
        return Probe.REFUSED
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(*address)
    except ConnectionRefusedError:
        return Probe.REFUSED
    except (OSError, TimeoutError, UnicodeError):
        return Probe.SILENT
    writer.transport.abort()
    return Probe.ACCEPTED


class Pings(IntEnum):
    """The state of the client that lends segments of a name, as the primary knows it."""

    NO_CLIENT = 0  # no client lends segments of this name
    CLOSED = 1  # it pinged, and has closed that connection
    OPEN = 2
    UNKNOWN = 3  # it has not pinged since this node leads


class OwnerPings:
    """The connection of each client's last ping."""

    def __init__(self) -> None:
        self._last: dict[bytes, Connection] = {}

    def pinged(self, client: bytes, connection: Connection) -> None:
        """A client pinged."""
        self._last[client] = connection

    def of_name(self, index: Index, name: str) -> Pings:
        """Of the clients that lend segments of this name: the one that is most alive."""
        segments = index.space.segments
        clients = {each.client for each in (*segments.by_name.get(name), *segments.by_endpoint.get(name))}
        return max((self._of_client(client) for client in clients), default=Pings.NO_CLIENT, key=_liveliness)

    def _of_client(self, client: bytes) -> Pings:
        last = self._last.get(client)
        if last is None:
            return Pings.UNKNOWN
        return Pings.CLOSED if last.closed else Pings.OPEN

    def forget_others(self, index: Index) -> None:
        """Forget clients that the index does not know (any more), if there are many."""
        if len(self._last) > _FORGET_FROM + 2 * len(index.owners.clients):
            self._last = {client: last for client, last in self._last.items() if client in index.owners.clients}

    def forget_all(self) -> None:
        """This node does not lead any more."""
        self._last.clear()

    def handlers(self, index: Callable[[], Index]) -> dict[int, Handler]:
        """Other nodes ask the primary: they serve the table too, and receive no pings."""
        return implement(OWNER_PINGS, lambda _, ask: OwnerAnswer(self.of_name(index(), ask.name)))


def _liveliness(pings: Pings) -> int:
    return (Pings.NO_CLIENT, Pings.CLOSED, Pings.UNKNOWN, Pings.OPEN).index(pings)


AskPings = Callable[[str], Awaitable[Pings]]


class OwnerCheck:
    """Decides whether the owner of a registration is alive. `ask` queries this node or the primary."""

    def __init__(self, ask: AskPings) -> None:
        self._ask = ask

    async def alive(self, name: str, rpc_meta: bytes) -> bool:
        """Whether the process that registered `rpc_meta` under this name is alive."""
        return await probe(address_of(rpc_meta)) is Probe.ACCEPTED or await self._pings(name)

    async def lends(self, name: str) -> bool:
        """Whether a client that pings lends segments of this name now."""
        return await self._ask(name) is Pings.OPEN

    async def _pings(self, name: str) -> bool:
        """Whether its client pings. If no one knows, because a new primary leads, wait for the next ping."""
        try:
            async with asyncio.timeout(PING_WAIT_S):
                while True:
                    pings = await self._ask(name)
                    if pings is not Pings.UNKNOWN:
                        return pings is Pings.OPEN
                    await asyncio.sleep(_PING_POLL_S)
        except TimeoutError:
            return False
