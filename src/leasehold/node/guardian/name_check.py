"""Detect another live node with the same name: both would write the same keys in the store and count as one node."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from leasehold.base.errors import LeaseholdError
from leasehold.coord.api import Coord
from leasehold.ha.keys import Keys, unpack
from leasehold.ha.node_values import NodeValue
from leasehold.node.access import PeerAccess
from leasehold.node.settings import split_address

STORE_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 2.0
ANSWER_BYTES_MAX = 1 << 20


class _Identity(msgspec.Struct):
    """The fields of a node's status that identify it; nodes of other releases may send more or fewer."""

    name: str = ""
    cluster: str = ""
    pid: int = 0


async def find_duplicate(coord: Coord, keys: Keys, name: str, cluster: str, admin: str, peers: PeerAccess) -> str:
    """Address and pid of another live node called `name`; "" if there is none.

    Only a node that answers counts: one that was killed or moved stays registered in the store for a while.
    """
    with contextlib.suppress(LeaseholdError, OSError, EOFError, ValueError, msgspec.MsgspecError):
        async with asyncio.timeout(STORE_TIMEOUT_S):
            found = await coord.get_one(keys.node(name))
        if found is None:
            return ""
        other = unpack(NodeValue, found.value, found.key)
        if not other.admin or other.admin == admin:
            return ""  # an earlier run of this node: it had the port that is ours now
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            found_there = await _identity_at(other.admin, peers)
        if (found_there.name, found_there.cluster) == (name, cluster):
            return f"{other.admin} (pid {found_there.pid})"
    return ""


async def _identity_at(admin: str, peers: PeerAccess) -> _Identity:
    host, port = split_address(admin, "admin")
    reader, writer = await asyncio.open_connection(host, port, limit=ANSWER_BYTES_MAX, **peers.tls_options(admin))
    try:
        headers = "".join(f"{name}: {value}\r\n" for name, value in {"Host": admin, **peers.headers()}.items())
        writer.write(f"GET /api/status HTTP/1.0\r\n{headers}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            return _Identity()
        return msgspec.json.decode(await reader.read(), type=_Identity)
    finally:
        writer.close()
