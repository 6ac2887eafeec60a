"""What an operator, a network or a disk can do to a simulated cluster, as commands of a transcript."""

from __future__ import annotations

from leasehold.ha.events import ForceRequested, SwitchoverRequested
from leasehold.ha.keys import pack
from leasehold.ha.node_values import NodeValue
from leasehold.index.records import PutEnd
from leasehold.journal.batch import decode_explicit, encode_explicit, encode_records
from leasehold.mvcc.model import DeleteRange, Put, Range, SortOrder, prefix_end
from leasehold.testing.sim.world import World


class Misfortunes:
    """The commands; `Script` says which world they befall."""

    @property
    def world(self) -> World:
        raise NotImplementedError

    def do_kill(self, name: str) -> str:
        """kill -9 of the worker; its guardian lives."""
        self.world.nodes_by_name[name].kill(with_guardian=False)
        return ""

    def do_host_death(self, name: str) -> str:
        self.world.nodes_by_name[name].kill(with_guardian=True)
        return ""

    def do_boot(self, name: str) -> str:
        self.world.nodes_by_name[name].start()
        return ""

    def do_wipe(self, name: str) -> str:
        """Its disk is empty."""
        self.world.nodes_by_name[name].disk = []
        return ""

    def do_stop(self, name: str) -> str:
        self.world.nodes_by_name[name].pause()
        return ""

    def do_cont(self, name: str) -> str:
        self.world.nodes_by_name[name].resume()
        return ""

    def do_cut(self, source: str, target: str) -> str:
        """Nothing gets from source to target (a node's name, or `store`, or `clients`)."""
        self.world.network.cut.add((source, target))
        return ""

    def do_silence(self, name: str) -> str:
        """A node's watch falls silent, while its requests are answered."""
        self.world.store.stalled.add(name)
        return ""

    def do_heal(self) -> str:
        self.world.network.calm()
        self.world.store.stalled.clear()
        return ""

    def do_store(self, what: str) -> str:
        if what == "away":
            self.world.store.stop()
        elif what == "back":
            self.world.store.start()
        else:
            self.world.store.compact(0)
        return ""

    def do_buffer(self, what: str) -> str:
        self.world.buffer.up = what == "back"
        return ""

    def do_force(self, name: str) -> str:
        """An operator's word: lead in spite of it."""
        run = self.world.nodes_by_name[name].run
        if run is not None:
            run.hear(ForceRequested())
        return ""

    def do_old_release(self, name: str) -> str:
        """A node of an older release is there, which reads version 1 of the journal only."""
        value = NodeValue(name=name, run="old", role="standby", reads=(1, 1))
        self.world.store.store.execute(Put(self.world.keys.node(name), pack(value)))
        return ""

    def do_version(self) -> str:
        """The version in which the last batch was written."""
        store, keys = self.world.store.store, self.world.keys
        tail = store.range(Range(keys.explicit, prefix_end(keys.explicit), limit=1, sort_order=SortOrder.DESCEND)).kvs
        return f"version {tail[0].value[3]}"

    def do_switchover(self, name: str, target: str = "") -> str:
        run = self.world.nodes_by_name[name].run
        if run is not None:
            run.hear(SwitchoverRequested(target))
        return ""

    def do_delete_leader(self) -> str:
        """Somebody deletes the leader key by hand."""
        self.world.store.store.execute(DeleteRange(self.world.keys.leader))
        return ""

    def do_lose_bulk(self) -> str:
        """Bulk batches run out of their 60 s unseen."""
        keys = self.world.keys
        self.world.store.store.execute(DeleteRange(keys.unlogged, prefix_end(keys.unlogged)))
        return ""

    def do_spoil_tail(self) -> str:
        """The last batch in the store gains a record that nobody can apply, after those that everybody can."""
        store, keys = self.world.store.store, self.world.keys
        tail = store.range(Range(keys.explicit, prefix_end(keys.explicit), limit=1, sort_order=SortOrder.DESCEND)).kvs
        batch = decode_explicit(tail[0].value)
        records = [encode_records([*batch.records, PutEnd(0, b"default", b"nobody's", 1 << 40)])]
        prev = (batch.prev_epoch, batch.prev_n)
        value = encode_explicit(batch.epoch, batch.first_n, prev, batch.right_ms, batch.wall_us, records)
        store.execute(Put(tail[0].key, value))
        return ""

    def do_damage_tail(self) -> str:
        """One byte of the last batch in the store goes bad."""
        store, keys = self.world.store.store, self.world.keys
        tail = store.range(Range(keys.explicit, prefix_end(keys.explicit), limit=1, sort_order=SortOrder.DESCEND)).kvs[
            0
        ]
        store.execute(Put(tail.key, tail.value[:-1] + bytes([tail.value[-1] ^ 1])))
        return ""
