"""The state of the cluster in the store: read it, and pause or resume failover."""

from __future__ import annotations

from leasehold.admin.access import Order
from leasehold.admin.status import ClusterStatus, DeadNode, HistoryLine, Operated, Peer
from leasehold.base.text import printable
from leasehold.coord.api import Coord
from leasehold.ha.keys import Keys, pack, unpack
from leasehold.ha.node_values import HistoryEntry, PauseValue, TruncationPoint
from leasehold.ha.signing import Signer
from leasehold.ha.view import View
from leasehold.mvcc.model import KeyValue, SortOrder, prefix_end
from leasehold.node.members import read_members
from leasehold.runtime.clock import wall_us

ORDER_ROLE = "order"  # in the history, where a change of role has the role


async def read_cluster(coord: Coord, keys: Keys, cluster: str, signer: Signer) -> ClusterStatus:
    """Read the leader, the nodes, the truncation point, a pause, and the length of the journal.

    Forged values are not shown as a leader or as nodes, but named.
    """
    leader_kv = await coord.get_one(keys.leader)
    node_kvs = (await coord.get(keys.nodes, prefix_end(keys.nodes))).kvs
    view = View(keys, signer)
    view.replace(0, 0, [*node_kvs, *([leader_kv] if leader_kv else [])])
    leader = view.leader.value if view.leader is not None and view.leader.trusted else None
    truncated_kv = await coord.get_one(keys.truncation)
    truncated = unpack(TruncationPoint, truncated_kv.value, truncated_kv.key) if truncated_kv else TruncationPoint(0, 0)
    pause_kv = await coord.get_one(keys.pause)
    members = await read_members(coord, keys)
    explicit = await coord.get(keys.explicit, prefix_end(keys.explicit), count_only=True)
    return ClusterStatus(
        cluster=cluster,
        leader=leader.name if leader else "",
        epoch=leader_kv.create_revision if leader_kv and leader else 0,
        leader_key=keys.leader.decode(errors="replace"),
        forged=_forged(view),
        paused=_paused(pause_kv),
        truncated_n=truncated.n,
        durable_copies=truncated.copies,
        journal_batches=explicit.count,
        dead=tuple(
            DeadNode(one.name, one.rpc, one.admin, one.version, one.started_us)
            for one in members
            if one.name not in view.nodes and one.name not in view.rejected
        ),
        nodes=tuple(
            Peer(
                name=node.name,
                role=node.role,
                ready=node.ready,
                applied_n=node.applied_n,
                rpc=node.rpc,
                admin=node.admin,
                quarantined_records=node.quarantined_records,
                leads=leader is not None and leader.run == node.run,
                reads_level=node.reads_level,
            )
            for node in view.nodes.values()
        ),
    )


def _forged(view: View) -> tuple[str, ...]:
    found = [f"the registration of '{name}' in the store" for name in sorted(view.rejected)]
    if view.leader is not None and not view.leader.trusted:
        found.append(f"the leader key in the store, which names '{view.leader.value.name}'")
    return tuple(found)


def _paused(kv: KeyValue | None) -> str:
    if kv is None:
        return ""
    value = unpack(PauseValue, kv.value, kv.key)
    return f"by {value.by}: {value.reason}" if value.reason else f"by {value.by or 'an operator'}"


async def read_history(coord: Coord, keys: Keys, limit: int) -> list[HistoryLine]:
    """The newest `limit` changes of role and orders, oldest first."""
    found = await coord.get(keys.history, prefix_end(keys.history), sort_order=SortOrder.DESCEND, limit=limit)
    entries = [unpack(HistoryEntry, kv.value, kv.key) for kv in found.kvs]
    entries.sort(key=lambda one: (one.epoch, one.wall_us))  # keys of orders sort after the other keys of an epoch
    return [HistoryLine(one.wall_us, one.node, one.epoch, one.role, one.sentence, one.counts) for one in entries]


async def record_order(coord: Coord, keys: Keys, node: str, order: Order, entries_max: int) -> None:
    """Add an order to the history, and delete the oldest entries beyond `entries_max`."""
    leader = await coord.get_one(keys.leader)
    last = await coord.get(keys.history, prefix_end(keys.history), sort_order=SortOrder.DESCEND, limit=1)
    epoch = unpack(HistoryEntry, last.kvs[0].value, last.kvs[0].key).epoch if last.kvs else 0
    epoch = max(epoch, leader.create_revision if leader else 0)
    now_us = wall_us()
    entry = HistoryEntry(node, epoch, ORDER_ROLE, printable(str(order)), now_us)
    await coord.put(keys.history + b"%020d-order-%020d-%s" % (epoch, now_us, node.encode()), pack(entry))
    end = prefix_end(keys.history)
    kept = await coord.get(keys.history, end, sort_order=SortOrder.DESCEND, limit=entries_max + 1, keys_only=True)
    if len(kept.kvs) > entries_max:
        await coord.delete(keys.history, kept.kvs[-1].key + b"\0")


async def pause(coord: Coord, keys: Keys, by: str, reason: str) -> Operated:
    """Stop automatic failover: no node campaigns until `resume`. The leader continues."""
    await coord.put(keys.pause, pack(PauseValue(by=by, reason=reason, wall_us=wall_us())))
    return Operated(True, "paused: the leader continues, but no other node takes over until `leasehold resume`")


async def resume(coord: Coord, keys: Keys) -> Operated:
    """Restart automatic failover."""
    deleted = (await coord.delete(keys.pause)).deleted
    return Operated(True, "resumed: nodes take over again" if deleted else "failover was not paused: nothing changed")
