"""A simulated cluster driven by commands, with a readable log as output. Transcripts are tests and documentation.

A transcript is text: a line `> command`, and below it the output. `rewrite(text)` runs the commands and returns the
same text with their present output.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable
from typing import Any

from leasehold.base.codes import Code
from leasehold.ha.effects import Role
from leasehold.index.index import Index
from leasehold.index.model import Object, PutConfig
from leasehold.mvcc.model import Range, prefix_end
from leasehold.testing.sim.callers import TENANT, Caller, Execute, blocks_of_object
from leasehold.testing.sim.calls import Answer
from leasehold.testing.sim.fault_commands import FaultCommands
from leasehold.testing.sim.hosts import Host
from leasehold.testing.sim.nodes import SimNode
from leasehold.testing.sim.oracle import Grant, Writing
from leasehold.testing.sim.plan import BASE, BLOCK, Plan, plan_for
from leasehold.testing.sim.virtual_clock import Violation
from leasehold.testing.sim.world import World

WAIT_MS_MAX = 60_000


def calm_plan(nodes: int, blocks: int, **changes: Any) -> Plan:
    """A plan without clients and faults of its own, with the product's default settings."""
    base = plan_for(0)
    ha = dataclasses.replace(type(base.ha)(newest_level=False), **changes.pop("ha", {}))
    index = dataclasses.replace(type(base.index)(), **changes.pop("index", {}))
    return dataclasses.replace(
        base, nodes=nodes, hosts=0, writers=0, readers=0, segment_blocks=blocks, roomy=False,
        faults_every_ms=10**9, ha=ha, index=index, drift=ha.drift, store_keeps_expiry=False, mixed=False,
        copies=False, lonely=False, step_objects=100,
    )  # fmt: skip


class Script:
    """One cluster, one command at a time: the `do_` methods here and the methods of `FaultCommands`."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._lines_shown = 0
        self._epochs: dict[str, int] = {}  # in the order of their first appearance
        self._writing: dict[str, Writing] = {}
        self._grants: dict[tuple[str, str], Grant] = {}
        self._caller: Caller | None = None
        self._settings: dict[str, dict[str, Any]] = {"ha": {}, "index": {}}

    @property
    def world(self) -> World:
        if self._world is None:
            raise ValueError("the first command must be: nodes N [blocks]")
        return self._world

    def run(self, line: str) -> list[str]:
        """Run one command. Returns the nodes' log lines and the command's output."""
        name, *args = shlex.split(line)
        out: list[str] = []
        try:
            out = self._command(name.replace("-", "_"))(*args).splitlines()
        except Violation as found:
            out = [f"BROKEN {found}"]
        return self._log() + out

    def _command(self, name: str) -> Callable[..., str]:
        command: Callable[..., str] | None = getattr(self, f"do_{name}", None)
        if command is None:
            command = getattr(FaultCommands(self.world), name)
        return command

    def _log(self) -> list[str]:
        """The nodes' log lines since the last command, without times."""
        if self._world is None:
            return []
        lines = list(self.world.clock.lines)
        fresh, self._lines_shown = lines[self._lines_shown :], len(lines)
        return [self._plain(" ".join(line.split()[1:])) for line in fresh]

    def _plain(self, line: str) -> str:
        """Without details that change whenever the code changes: epochs are counted, waits are rounded."""

        def epoch(match: re.Match[str]) -> str:
            return f"{match[1]} {self._epochs.setdefault(match[2], len(self._epochs) + 1)}"

        def wait(match: re.Match[str]) -> str:
            wait_ms = int(match[1])
            return "waiting less than 0.3 s" if wait_ms < 300 else f"waiting about {round(wait_ms / 1000)} s"

        return re.sub(r"waiting (\d+) ms", wait, re.sub(r"([Ee]poch) (\d+)", epoch, line))

    def _step_until(self, done: Callable[[], bool], limit_ms: int = WAIT_MS_MAX) -> bool:
        world = self.world
        end_ms = world.clock.now_ms + limit_ms
        while not done():
            if world.clock.now_ms > end_ms:
                return False
            world.clock.step()
            world.check()
        return True

    # --- the cluster ---

    def do_set(self, section: str, name: str, value: str) -> str:
        """Set a setting of the next cluster: `set ha snapshot_records 100`."""
        self._settings[section][name] = int(value) if value.lstrip("-").isdigit() else value
        return ""

    def do_nodes(self, count: str, blocks: str = "64") -> str:
        """Start nodes n1, n2, ... one after the other: n1 leads."""
        self._world = World(1, calm_plan(int(count), int(blocks), **self._settings), start_nodes=False)
        self.world.faults.on = False
        for node in self.world.nodes:
            node.start()
            self._await_role(node, Role.PRIMARY if node is self.world.nodes[0] else Role.STANDBY)
        self._caller = Caller(self.world, "client")
        self._lines_shown = len(self.world.clock.lines)
        return self.do_roles()

    def _await_role(self, node: SimNode, role: Role) -> None:
        self._step_until(lambda: node.run is not None and node.run.machine.role is role)

    def do_host(self) -> str:
        """A storage host that lends one segment."""
        host = Host(self.world, len(self.world.hosts), 0)
        self.world.hosts.append(host)
        self._step_until(lambda: host.mounted)
        return f"{host.name} mounted"

    def do_roles(self) -> str:
        shown = []
        for node in self.world.nodes:
            run = node.run
            role = "down" if run is None else run.machine.role.value
            serves = " (serves)" if run is not None and run.may_serve() else ""
            shown.append(f"{node.name}: {role}{serves}")
        return ", ".join(shown)

    def do_until(self, name: str, *what: str) -> str:
        """Wait until a node has a role, or `serves`."""
        wanted = " ".join(what)
        node = self.world.nodes_by_name[name]

        def reached() -> bool:
            if node.run is None:
                return False
            return node.run.may_serve() if wanted == "serves" else node.run.machine.role.value == wanted

        start_ms = self.world.clock.now_ms
        if not self._step_until(reached):
            return f"still not after {WAIT_MS_MAX // 1000} s: {self.do_roles()}"
        took_ms = self.world.clock.now_ms - start_ms
        return f"after {'less than 0.5' if took_ms < 500 else round(took_ms / 1000, 1)} s"

    def do_wait(self, duration_ms: str) -> str:
        end_ms = self.world.clock.now_ms + int(duration_ms)
        self._step_until(lambda: self.world.clock.now_ms >= end_ms)
        return ""

    def do_status(self) -> str:
        """Each node's durable copies, and whether it refuses puts."""
        shown = []
        for node in self.world.nodes:
            if node.run is not None:
                full = ", refuses puts" if node.run.machine.index.log.journal_full else ""
                shown.append(f"{node.name}: durable_copies {node.run.machine.durable_copies}{full}")
        return "; ".join(shown)

    def do_applied(self) -> str:
        """Each node's applied index."""
        tail = self.world.oracle.truth.tail_n
        applied = [
            f"{node.name} {node.run.machine.ctx.state.applied.n}" for node in self.world.nodes if node.run is not None
        ]
        return f"tail {tail}; " + ", ".join(applied)

    def do_journal(self) -> str:
        """The first record in the store, and the truncation point."""
        store, keys = self.world.store.store, self.world.keys
        kvs = store.range(Range(keys.explicit, prefix_end(keys.explicit), keys_only=True)).kvs
        first = int(kvs[0].key[-20:]) if kvs else 0
        point = self.world.truncation_point()
        n, copies = (point.n, point.copies) if point is not None else (0, 0)
        alone = " (durable_copies 1)" if copies == 1 and self.world.plan.ha.copies > 1 else ""
        return f"batches from record {first} on; the truncation point is {n}{alone}"

    def do_length(self, at_most: str) -> str:
        """Whether the journal has at most this many batches."""
        store, keys = self.world.store.store, self.world.keys
        count = store.range(Range(keys.explicit, prefix_end(keys.explicit), count_only=True)).count
        return f"at most {at_most} batches" if count <= int(at_most) else f"{count} batches"

    # --- clients ---

    def _call(self, what: str, execute: Execute, leaving: Callable[[Answer], None]) -> Any:
        """One call to the leader. Returns None if there is no answer."""
        caller = self._caller
        if caller is None:
            raise ValueError("no nodes yet")
        box: list[Any] = []
        caller.call(what, execute, box.append, leaving)
        self._step_until(lambda: bool(box))
        return box[0]

    def do_start(self, writer: str, key: str, blocks: str = "1", upsert: str = "") -> str:
        """put_start (or upsert_start): request space."""
        found: list[Object] = []

        def execute(index: Index, leader_ms: int) -> Answer | None:
            if index.owners.unproven and index.owners.space_must_wait(native=False):
                return None
            start = index.puts.start_upsert if upsert else index.puts.start
            reply = start(leader_ms, writer.encode(), TENANT, key.encode(), int(blocks) * BLOCK, PutConfig())
            code, entry, after = reply.code, reply.value, reply.after
            if entry is not None:
                found.append(entry)
                self._writing[writer] = Writing(key.encode(), entry.put_seq, blocks_of_object(entry), writer)
            return Answer(code, after, hands_out_space=True)

        def leaving(answer: Answer) -> None:
            if found:
                self.world.oracle.handed_out(self._writing[writer])

        code = self._call("put_start", execute, leaving)
        if code is Code.OK:
            return f"{writer} got put {found[0].put_seq} at {_place(self._writing[writer])}"
        return _named(code)

    def do_write(self, writer: str) -> str:
        """Write the bytes of a put to memory."""
        writing = self._writing[writer]
        for block in writing.blocks:
            self.world.oracle.write(block, (writing.key, writing.put_seq))
        return ""

    def do_end(self, writer: str, upsert: str = "") -> str:
        """put_end: the bytes are complete."""
        writing = self._writing[writer]
        writing.active = False

        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.puts.end(leader_ms, writer.encode(), TENANT, writing.key)
            return Answer(reply.code, reply.after)

        def leaving(answer: Answer) -> None:
            if answer.value is Code.OK:
                self.world.oracle.show(writing.key, writing.put_seq)

        return _named(self._call("put_end", execute, leaving))

    def do_put(self, key: str, blocks: str = "1", upsert: str = "") -> str:
        """start, write, end."""
        writer = f"writer-of-{key}"
        started = self.do_start(writer, key, blocks, upsert)
        if writer not in self._writing or not started.startswith(writer):
            return started
        self.do_write(writer)
        return f"{self.do_end(writer, upsert)}, put {self._writing[writer].put_seq} at {_place(self._writing[writer])}"

    def do_puts(self, prefix: str, count: str) -> str:
        """Many puts, one after the other. Returns how many were accepted."""
        accepted = sum(self.do_put(f"{prefix}{number}").startswith("ok") for number in range(int(count)))
        return f"{accepted} of {count} accepted"

    def do_get(self, reader: str, key: str) -> str:
        """Read a key, and hold the lease on it."""
        name, oracle = key.encode(), self.world.oracle
        shown_n, changed_n, visible = (
            oracle.shown.get(name, 0),
            oracle.truth.changed.get(name, 0),
            oracle.truth.visible.get(name),
        )
        sent_us = self.world.clock.now_us
        grants: list[Grant] = []

        def execute(index: Index, leader_ms: int) -> Answer | None:
            entry = index.reads.get(leader_ms, TENANT, name)
            if entry is None:
                reply = index.reads.miss(TENANT, name)
                code, after = reply.value, reply.after
                return Answer(code, after)
            if index.owners.unproven and index.owners.must_wait(entry):
                return None
            until_us = sent_us + int(index.settings.lease_ttl_ms * 1000 * (1 - self.world.plan.drift))
            blocks = blocks_of_object(entry)
            grants.append(Grant(name, entry.put_seq, blocks, until_us, reader, self.world.clock.now_us))
            return Answer(Code.OK, entry.changed_n)

        def leaving(answer: Answer) -> None:
            if grants:
                oracle.hit(name, grants[0].put_seq, shown_n, grants[0])
                self._grants[(reader, key)] = grants[0]
            elif answer.value is Code.NOT_FOUND:
                oracle.missed(name, answer.after, changed_n, visible)

        code = self._call("get", execute, leaving)
        return f"put {grants[0].put_seq}" if code is Code.OK else _named(code)

    def do_look(self, reader: str, key: str) -> str:
        """A reader checks the bytes, if its lease is still valid."""
        grant = self._grants[(reader, key)]
        if self.world.clock.now_us >= grant.until_us:
            return "the lease has expired: nothing is read"
        self.world.oracle.read(grant)
        return "the bytes are correct"

    def do_remove(self, key: str, force: str = "") -> str:
        name, decided_us = key.encode(), 0

        def execute(index: Index, leader_ms: int) -> Answer:
            nonlocal decided_us
            decided_us = self.world.clock.now_us
            reply = index.removes.remove(leader_ms, TENANT, name, bool(force), b"script")
            code, after = reply.code, reply.after
            return Answer((code, after), after)

        def leaving(answer: Answer) -> None:
            code, n = answer.value
            if code is Code.OK:
                self.world.oracle.removed(name, n, bool(force), decided_us)

        value = self._call("remove", execute, leaving)
        return _named(value[0] if value is not None else None)

    def do_remove_all(self) -> str:
        def execute(index: Index, leader_ms: int) -> Answer:
            reply = index.removes.remove_all(leader_ms, TENANT, False)
            code, count, after = reply.code, reply.value, reply.after
            return Answer((code, count), after)

        value = self._call("remove_all", execute, lambda _: None)
        return "no answer" if value is None else f"{_named(value[0])}, {value[1]} removed"

    def do_copy(self, key: str, target: str) -> str:
        """Copy an object to another storage host: start and end."""

        def start(index: Index, leader_ms: int) -> Answer:
            reply = index.copies.copy_start(leader_ms, b"copier", TENANT, key.encode(), "", (target,))
            code, after = reply.code, reply.after
            return Answer(code, after, hands_out_space=True)

        def end(index: Index, leader_ms: int) -> Answer:
            reply = index.copies.copy_end(leader_ms, b"copier", TENANT, key.encode())
            return Answer(reply.code, reply.after)

        code = self._call("copy_start", start, lambda _: None)
        return _named(self._call("copy_end", end, lambda _: None) if code is Code.OK else code)

    def do_evict(self, key: str) -> str:
        """The primary evicts a key without a record."""
        for node in self.world.nodes:
            if node.run is not None and node.run.may_serve():
                index = node.run.machine.index
                entry = index.catalog.lookup(TENANT, key.encode())
                if entry is None:
                    return "no such key"
                index.eviction.evict(entry)
                return f"{node.name} evicted {key}"
        return "no node leads"

    def do_has(self, name: str, key: str) -> str:
        """The version of a key in a node's own state, in any role."""
        run = self.world.nodes_by_name[name].run
        if run is None:
            return "down"
        entry = run.machine.index.catalog.lookup(TENANT, key.encode())
        return f"{name} has nothing" if entry is None else f"{name} has put {entry.put_seq}"


def _named(code: Code | None) -> str:
    return "no answer: outcome unknown" if code is None else Code(code).name.lower().replace("_", " ")


def _place(writing: Writing) -> str:
    first = writing.blocks[0]
    return f"{first.endpoint.split(':')[0]}+{first.number - BASE // BLOCK}"


def rewrite(text: str) -> str:
    """Run a transcript's commands and return the same text with their present output."""
    script, out = Script(), []
    for line in text.splitlines():
        if line.startswith("> "):
            out.append(line)
            out.extend(script.run(line[2:]))
        elif not line or line.startswith("#"):
            out.append(line)
    return "\n".join(out) + "\n"
