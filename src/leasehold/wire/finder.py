"""Find the master: by a list of addresses, or by the key in the coordination store that names the leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from leasehold.base.errors import InvalidArgument, Unavailable
from leasehold.coord.api import Coord

Address = tuple[str, int]


class Finder(Protocol):
    async def find(self) -> Address:
        """The address to connect to next; raises `Unavailable` if it is unknown now."""
        ...


def parse_address(text: str) -> Address:
    """`HOST:PORT`; an IPv6 host is in brackets."""
    if "://" in text:
        raise InvalidArgument(
            f"{text!r} is not an address of a master: write HOST:PORT of a node, such as 127.0.0.1:50051; to look "
            "the leader up in a store use `leasehold host --coord URL`, or in Python "
            "leasehold.wire.finder.MasterView(coord)"
        )
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidArgument(f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:50051")
    return host.strip("[]"), int(port)


class AddressList:
    """Several addresses, tried in turn."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        if not addresses:
            raise InvalidArgument("at least one master address is needed")
        self._addresses = list(addresses)
        self._next = 0

    async def find(self) -> Address:
        address = self._addresses[self._next % len(self._addresses)]
        self._next += 1
        return address


class MasterView:
    """The key that Mooncake's own clients read: `mooncake-store/<cluster>/master_view` = `host:port`."""

    def __init__(self, coord: Coord, cluster: str = "mooncake_cluster") -> None:
        self._coord = coord
        self._key = f"mooncake-store/{cluster}/master_view".encode()

    async def find(self) -> Address:
        found = await self._coord.get_one(self._key)
        if found is None:
            raise Unavailable(f"no master is elected: {self._key.decode()} is absent")
        return parse_address(found.value.decode())
