"""The coordination store of a simulated world: the real `mvcc.Store` behind the network, on true time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leasehold.ha.effects import GrantLease, OpenWatch, StoreRequest
from leasehold.ha.events import Failure, NodeEvent, StoreAnswered, StoreResult, WatchBroken, WatchDelivered
from leasehold.mvcc.errors import Compacted, StoreError
from leasehold.mvcc.model import Op, Range, Txn, Watch
from leasehold.mvcc.store import Store
from leasehold.mvcc.watch import Watcher
from leasehold.testing.sim.network import Network
from leasehold.testing.sim.virtual_clock import VirtualClock

NAME = "store"


class Party(Protocol):
    """A node as the store sees it. A new run of a process is a new party."""

    @property
    def name(self) -> str: ...

    def deliver(self, event: NodeEvent) -> None: ...


class Stream:
    """One watch: batches are read when they are sent, and arrive in order."""

    __slots__ = ("arrives_us", "closed", "next_revision", "open", "party", "pumping", "watcher")

    def __init__(self, party: Party, open: OpenWatch) -> None:
        self.party = party
        self.open = open
        self.watcher: Watcher | None = None
        self.next_revision = open.start_revision
        self.arrives_us = 0
        self.pumping = False
        self.closed = False


class SimStore:
    """Executes requests as they arrive; can be stopped, restarted and compacted."""

    def __init__(
        self,
        clock: VirtualClock,
        network: Network,
        *,
        keeps_expiry: bool,
        on_write: Callable[[Op, StoreResult], None],
        rewrite: Callable[[Op], Op] | None = None,
    ) -> None:
        self._clock, self._network = clock, network
        self.store = Store()
        self.up = True
        self._keeps_expiry = keeps_expiry
        self._on_write = on_write
        self._rewrite = rewrite
        self._streams: list[Stream] = []
        self._expiry_at_ms = -1
        self.stalled: set[str] = set()  # nodes whose watch is silent although requests are answered

    # --- requests ---

    def request(self, party: Party, effect: StoreRequest | GrantLease) -> None:
        """A node sends a request. It receives one event: an answer, or `Failure.UNKNOWN` after the timeout."""
        waiting = [True]

        def end(event: StoreAnswered) -> None:
            if waiting[0]:
                waiting[0] = False
                party.deliver(event)

        self._clock.after_ms(effect.timeout_ms, end, StoreAnswered(effect.request, failure=Failure.UNKNOWN))
        self._network.send(party.name, NAME, self._execute, party, effect, end)

    def _execute(self, party: Party, effect: StoreRequest | GrantLease, end: Callable[[StoreAnswered], None]) -> None:
        if not self.up:
            return
        try:
            if isinstance(effect, GrantLease):
                result: StoreResult = self.store.lease_grant(self._clock.now_ms, effect.ttl_s)
                self._arm_expiry()
            else:
                op: Op = effect.op
                if self._rewrite is not None:
                    op = self._rewrite(op)
                result = self.store.execute(op)
                if not isinstance(op, Range):
                    self._on_write(op, result)
            answer = StoreAnswered(effect.request, result=result)
        except StoreError as error:
            answer = StoreAnswered(effect.request, failure=Failure.REFUSED, error=error)
        self._network.send(NAME, party.name, end, answer)

    # --- leases ---

    def keep_alive(self, party: Party, lease: int, lost: Callable[[], None]) -> None:
        self._network.send(party.name, NAME, self._keep_alive, party, lease, lost)

    def _keep_alive(self, party: Party, lease: int, lost: Callable[[], None]) -> None:
        if self.up and self.store.lease_keep_alive(self._clock.now_ms, lease).ttl_s <= 0:
            self._network.send(NAME, party.name, lost)

    def revoke(self, party: Party, lease: int) -> None:
        self._network.send(party.name, NAME, self._revoke, lease)

    def _revoke(self, lease: int) -> None:
        if self.up:
            try:
                self.store.lease_revoke(lease)
            except StoreError:
                return  # it has already expired

    def _arm_expiry(self) -> None:
        at_ms = self.store.next_expiry_ms
        if at_ms is not None and (self._expiry_at_ms < 0 or at_ms < self._expiry_at_ms):
            self._expiry_at_ms = at_ms
            self._clock.after_ms(max(1, at_ms - self._clock.now_ms), self._expire, at_ms)

    def _expire(self, at_ms: int) -> None:
        if at_ms != self._expiry_at_ms:
            return
        self._expiry_at_ms = -1
        if self.up:
            self.store.tick(self._clock.now_ms)
            self._arm_expiry()

    # --- watches ---

    def watch(self, party: Party, effect: OpenWatch) -> Stream:
        stream = Stream(party, effect)
        self._streams.append(stream)
        self._network.send(party.name, NAME, self._begin, stream)
        self._clock.after_ms(1_000, self._begin_again, stream)
        return stream

    def unwatch(self, stream: Stream) -> None:
        stream.closed = True
        if stream.watcher is not None:
            self.store.unwatch(stream.watcher)
        if stream in self._streams:
            self._streams.remove(stream)

    def _begin_again(self, stream: Stream) -> None:
        """Repeat a request that was lost."""
        if stream.watcher is None and not stream.closed:
            self._network.send(stream.party.name, NAME, self._begin, stream)
            self._clock.after_ms(1_000, self._begin_again, stream)

    def _begin(self, stream: Stream) -> None:
        if stream.closed or stream.watcher is not None or not self.up:
            return
        op = stream.open
        stream.watcher = self.store.watch(
            Watch(op.key, op.range_end, stream.next_revision), lambda _: self._wake(stream)
        )

    def _wake(self, stream: Stream) -> None:
        if not stream.pumping:
            stream.pumping = True
            self._clock.after_us(50, self._pump, stream)

    def _pump(self, stream: Stream) -> None:
        stream.pumping = False
        if stream.closed or stream.watcher is None or not self.up:
            return
        if stream.party.name in self.stalled or not self._network.connected(NAME, stream.party.name):
            stream.pumping = True
            self._clock.after_ms(100, self._pump, stream)
            return
        try:
            batch = self.store.pull(stream.watcher)
        except Compacted as error:
            self._deliver(stream, WatchBroken(stream.open.watch, str(error)))
            self.unwatch(stream)
            return
        stream.next_revision = stream.watcher.next_revision
        if batch is not None:
            self._deliver(stream, WatchDelivered(stream.open.watch, batch))
        if not stream.watcher.idle:
            self._wake(stream)

    def _deliver(self, stream: Stream, event: NodeEvent) -> None:
        latency_us = int(self._network.latency_ms(NAME, stream.party.name) * 1000)
        stream.arrives_us = max(stream.arrives_us + 1, self._clock.now_us + latency_us)
        self._clock.after_us(stream.arrives_us - self._clock.now_us, self._arrive, stream, event)

    @staticmethod
    def _arrive(stream: Stream, event: NodeEvent) -> None:
        if not stream.closed or isinstance(event, WatchBroken):
            stream.party.deliver(event)

    # --- faults ---

    def break_watches(self, name: str) -> None:
        """Break the streams of one node permanently."""
        for stream in [one for one in self._streams if one.party.name == name]:
            self.unwatch(stream)
            self._clock.after_ms(1, stream.party.deliver, WatchBroken(stream.open.watch, "cut"))

    def stop(self) -> None:
        """Stop the store: it answers nothing, and streams are silent."""
        self.up = False
        for stream in self._streams:
            if stream.watcher is not None:
                self.store.unwatch(stream.watcher)
                stream.watcher = None

    def start(self) -> None:
        """Start it again with everything that it acknowledged. Clients' streams continue where they were."""
        self.up = True
        self.store.term += 1
        if not self._keeps_expiry:
            self.store.renew_all(self._clock.now_ms)
        self._expiry_at_ms = -1
        self._arm_expiry()
        for stream in self._streams:
            self._clock.after_ms(self._clock.random.uniform(1, 500), self._begin, stream)

    def fill(self) -> None:
        """The store is out of space."""
        self.store.quota_bytes = 1

    def give_space(self) -> None:
        """An operator frees space."""
        if self.store.quota_bytes:
            self._clock.log("operator", "gives the store more space")
            self.store.quota_bytes = 0

    def compact(self, back: int) -> None:
        """Delete history older than `back` revisions."""
        revision = self.store.revision - back
        if self.up and revision > max(0, self.store.compact_revision):
            self.store.compact(revision)


def unfenced(leader_key: bytes) -> Callable[[Op], Op]:
    """Plant a bug: journal writes without their fence."""

    def rewrite(op: Op) -> Op:
        if isinstance(op, Txn) and len(op.compare) == 2 and op.compare[0].key == leader_key:
            return Txn(op.compare[1:], op.success, op.failure)
        return op

    return rewrite
