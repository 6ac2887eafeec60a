"""Faults and operator actions as commands of a transcript."""

from __future__ import annotations

from leasehold.ha.events import FeatureLevelRequested, ForceRequested, SwitchoverRequested
from leasehold.ha.keys import LeaderValue, pack
from leasehold.ha.node_values import NodeValue
from leasehold.index.records import FeatureLevel, PutEnd, Record
from leasehold.journal.batch import decode_explicit, encode_explicit, encode_records
from leasehold.mvcc.model import DeleteRange, Put, Range, SortOrder, prefix_end
from leasehold.testing.sim.world import World


class FaultCommands:
    """Every method is one command on the cluster of `world`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def kill(self, name: str) -> str:
        """Kill the worker with SIGKILL; its guardian survives."""
        self._world.nodes_by_name[name].kill(with_guardian=False)
        return ""

    def host_death(self, name: str) -> str:
        self._world.nodes_by_name[name].kill(with_guardian=True)
        return ""

    def boot(self, name: str) -> str:
        self._world.nodes_by_name[name].start()
        return ""

    def wipe(self, name: str) -> str:
        """Empty its disk."""
        self._world.nodes_by_name[name].disk = []
        return ""

    def stop(self, name: str) -> str:
        self._world.nodes_by_name[name].pause()
        return ""

    def cont(self, name: str) -> str:
        self._world.nodes_by_name[name].resume()
        return ""

    def cut(self, source: str, target: str) -> str:
        """Lose every message from source to target (a node's name, `store`, or `clients`)."""
        self._world.network.cut.add((source, target))
        return ""

    def silence(self, name: str) -> str:
        """A node's watch is silent, while its requests are answered."""
        self._world.store.stalled.add(name)
        return ""

    def heal(self) -> str:
        self._world.network.calm()
        self._world.store.stalled.clear()
        return ""

    def store(self, what: str) -> str:
        """Stop the store (`away`), start it (`back`), or compact its history (`compact`)."""
        match what:
            case "away":
                self._world.store.stop()
            case "back":
                self._world.store.start()
            case "compact":
                self._world.store.compact(0)
            case _:
                raise ValueError(f"store {what!r}: use away, back or compact")
        return ""

    def buffer(self, what: str) -> str:
        """Stop the buffer (`away`) or start it (`back`)."""
        if what not in ("away", "back"):
            raise ValueError(f"buffer {what!r}: use away or back")
        self._world.buffer.up = what == "back"
        return ""

    def force(self, name: str) -> str:
        """An operator forces the promotion."""
        run = self._world.nodes_by_name[name].run
        if run is not None:
            run.deliver(ForceRequested())
        return ""

    def old_release(self, name: str) -> str:
        """Register a node of an older release that reads only version 1 of the journal."""
        value = NodeValue(name=name, run="old", role="standby", reads=(1, 1))
        self._world.store.store.execute(Put(self._world.keys.node(name), pack(value)))
        return ""

    def delete_node(self, name: str) -> str:
        """The registration of a node expires."""
        self._world.store.store.execute(DeleteRange(self._world.keys.node(name)))
        return ""

    def forge_leader(self, name: str) -> str:
        """A client of the store overwrites the leader key, without a lease, as `etcdctl put` does."""
        value = LeaderValue(name, "forged", door="stranger:1")
        self._world.store.store.execute(Put(self._world.keys.leader, pack(value)))
        return ""

    def version(self) -> str:
        """Show the version of the last batch."""
        store, keys = self._world.store.store, self._world.keys
        tail = store.range(Range(keys.explicit, prefix_end(keys.explicit), limit=1, sort_order=SortOrder.DESCEND)).kvs
        return f"version {tail[0].value[3]}"

    def level(self, name: str, level: str = "") -> str:
        """An operator switches the feature level; without a number, show the levels as node `name` knows them."""
        run = self._world.nodes_by_name[name].run
        if run is None:
            return "down"
        if level:
            run.deliver(FeatureLevelRequested(int(level)))
            return ""
        features, truncated_n = run.machine.index.features, run.machine.ctx.view.truncated_n
        joins = "older nodes can join" if truncated_n >= features.switched_n else "older nodes cannot join"
        return f"level {features.level} since record {features.switched_n}, {joins}"

    def newer_level(self) -> str:
        """Append a switch to a feature level of a later release to the last batch in the store."""
        self._append_to_tail(FeatureLevel(0, 99))
        return ""

    def switchover(self, name: str, target: str = "") -> str:
        run = self._world.nodes_by_name[name].run
        if run is not None:
            run.deliver(SwitchoverRequested(target))
        return ""

    def delete_leader(self) -> str:
        """An operator deletes the leader key."""
        self._world.store.store.execute(DeleteRange(self._world.keys.leader))
        return ""

    def lose_unlogged(self) -> str:
        """Unlogged batches expire from the store unread."""
        keys = self._world.keys
        self._world.store.store.execute(DeleteRange(keys.unlogged, prefix_end(keys.unlogged)))
        return ""

    def spoil_tail(self) -> str:
        """Append a record that no node can apply to the last batch in the store."""
        self._append_to_tail(PutEnd(0, b"default", b"missing", 1 << 40))
        return ""

    def _append_to_tail(self, record: Record) -> None:
        store, keys = self._world.store.store, self._world.keys
        tail = store.range(Range(keys.explicit, prefix_end(keys.explicit), limit=1, sort_order=SortOrder.DESCEND)).kvs
        batch = decode_explicit(tail[0].value)
        records = [encode_records([*batch.records, record])]
        prev = (batch.prev_epoch, batch.prev_n)
        value = encode_explicit(batch.epoch, batch.first_n, prev, batch.right_ms, batch.wall_us, records)
        store.execute(Put(tail[0].key, value))

    def damage_tail(self) -> str:
        """Damage one byte of the last batch in the store."""
        store, keys = self._world.store.store, self._world.keys
        tail = store.range(Range(keys.explicit, prefix_end(keys.explicit), limit=1, sort_order=SortOrder.DESCEND)).kvs[
            0
        ]
        store.execute(Put(tail.key, tail.value[:-1] + bytes([tail.value[-1] ^ 1])))
        return ""
