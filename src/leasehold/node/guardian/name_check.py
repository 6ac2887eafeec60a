"""Is another node of this name alive? In the store two would write over each other's word, and count as one."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from leasehold.base.errors import LeaseholdError
from leasehold.coord.api import Coord
from leasehold.ha.keys import Keys, unpack
from leasehold.ha.node_values import NodeValue
from leasehold.node.settings import split_address

STORE_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 2.0
ANSWER_BYTES_MAX = 1 << 20


class _Said(msgspec.Struct):
    """What of its status counts here: nodes of other releases may say more, or less."""

    name: str = ""
    cluster: str = ""
    pid: int = 0


async def find_namesake(coord: Coord, keys: Keys, name: str, cluster: str, admin: str) -> str:
    """Where another node called `name` answers, and who that is; "" if none does.

    Only what answers by that name counts: a node that was killed, or has moved, stands in the store for a while too.
    """
    with contextlib.suppress(LeaseholdError, OSError, EOFError, ValueError, msgspec.MsgspecError):
        async with asyncio.timeout(STORE_TIMEOUT_S):
            found = await coord.get_one(keys.node(name))
        if found is None:
            return ""
        other = unpack(NodeValue, found.value, found.key)
        if not other.admin or other.admin == admin:
            return ""  # an earlier run of this very node: its port is ours now
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            said = await _ask(other.admin)
        if (said.name, said.cluster) == (name, cluster):
            return f"{other.admin} (pid {said.pid})"
    return ""


async def _ask(admin: str) -> _Said:
    host, port = split_address(admin, "admin")
    reader, writer = await asyncio.open_connection(host, port, limit=ANSWER_BYTES_MAX)
    try:
        writer.write(f"GET /api/status HTTP/1.0\r\nHost: {admin}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            return _Said()
        return msgspec.json.decode(await reader.read(), type=_Said)
    finally:
        writer.close()
