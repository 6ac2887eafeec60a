"""The list of all nodes that have run: so that a dead node is shown as dead, and not just missing.

For people only. No decision of a node depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from leasehold.base.errors import LeaseholdError, PeerError
from leasehold.coord.api import Coord
from leasehold.ha.keys import Keys, pack, unpack
from leasehold.ha.node_values import MemberValue
from leasehold.mvcc.model import prefix_end

MEMBERS_MAX: Final = 64  # hosts with changing names would make the list grow without limit
RETRY_S: Final = 2.0


async def read_members(coord: Coord, keys: Keys) -> list[MemberValue]:
    """All listed nodes, by name. Values that no node wrote are left out."""
    found = []
    for kv in (await coord.get(keys.members, prefix_end(keys.members), limit=2 * MEMBERS_MAX)).kvs:
        with contextlib.suppress(PeerError):
            found.append(unpack(MemberValue, kv.value, kv.key))
    return found


async def enlist(coord: Coord, keys: Keys, member: MemberValue) -> None:
    """List this node, and forget the nodes that were started longest ago if there are too many."""
    while True:
        try:
            await coord.put(keys.members + member.name.encode(), pack(member))
            listed = sorted(await read_members(coord, keys), key=lambda one: one.started_us)
            for old in listed[: max(0, len(listed) - MEMBERS_MAX)]:
                await forget(coord, keys, old.name)
        except LeaseholdError:
            await asyncio.sleep(RETRY_S)
        else:
            return


async def forget(coord: Coord, keys: Keys, name: str) -> bool:
    """Take a node off the list. False: it was not on it."""
    return (await coord.delete(keys.members + name.encode())).deleted > 0
