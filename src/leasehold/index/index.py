"""The master's state machine. (Interface; bodies land next. Everything here is stable unless noted.)

Two halves over one state:

- **decide** (primary): validates, chooses, emits records into the outbox, and applies them by the same code;
- **apply** (standby, replay): a function of the records, and of renewals and hints, which travel in bulk.

`now_ms` is leader time. Every command says `after`: the number that must be durable
(`durable_n >= after`) before its answer may leave.
A command answers `(code, after)`, or `(code, value, after)`; the hot paths answer an `Object`
whose `changed_n` is the `after`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from leasehold.base.errors import LeaseholdError
from leasehold.index.codes import Code
from leasehold.index.model import Object, PutConfig, Replica, Segment, SegmentSpec, Task
from leasehold.index.records import Record
from leasehold.index.settings import IndexSettings
from leasehold.index.snapshot import Keyless, Slice

T = TypeVar("T")


class Unappliable(LeaseholdError):
    """A record that does not fit this state.

    The node has diverged (or lost a record). Set it aside, say so, rebuild.
    """


class Index:
    """The state of one master. One thread, no locks, no clock, no randomness."""

    # --- public state; read only for others ---
    epoch: int  # create revision of the leader key of the last `Begin`
    last_n: int  # number of the last record decided or applied
    durable_n: int  # number of the last record known durable
    lease_ttl_ms: int  # what a read is told
    urgent: bool  # a lease end that the standby knows is less than a second away: flush within 100 ms
    object_count: int
    evicted_count: int
    segments: dict[int, Segment]  # by incarnation

    def __init__(self, settings: IndexSettings, choose: Callable[[int], int]) -> None:
        """`choose(n)` returns a number in 0..n-1: the only randomness, from outside."""
        raise NotImplementedError

    # --- epochs and durability ---
    def begin(self, now_ms: int, epoch: int, *, handover_ms: int | None = None, drift_ms: int = 0) -> int:
        """Primary.

        The first record of an epoch. With `handover_ms` older ends are mapped, else all get grace. Returns its
        number.
        """
        raise NotImplementedError

    def handover(self, now_ms: int, last_bulk: int) -> int:
        """Primary: the last record of this epoch. Nothing may be decided after it."""
        raise NotImplementedError

    def take_outbox(self) -> list[tuple[int, Record]]:
        """The records decided since the last call, in order, with their numbers."""
        raise NotImplementedError

    def durable(self, n: int) -> None:
        """Everything up to `n` is durable."""
        raise NotImplementedError

    def distrust_owners(self) -> None:
        """After a restart of everything: nobody is sent to a segment before its owner has pinged (H9)."""
        raise NotImplementedError

    # --- reads (hot) ---
    def get(self, now_ms: int, tenant: bytes, key: bytes) -> Object | None:
        """The readable object, its lease extended.

        None: ask `miss` for code and `after`. `after` of a hit is `.changed_n`.
        """
        raise NotImplementedError

    def exist(self, now_ms: int, tenant: bytes, key: bytes) -> Object | None:
        """As `get`; extends the lease only if the setting `exist_leases` says so."""
        raise NotImplementedError

    def miss(self, tenant: bytes, key: bytes) -> tuple[Code, int]:
        """Why `get` or `exist` gave nothing (not found, or not ready), and what must be durable before saying so."""
        raise NotImplementedError

    def get_many(self, now_ms: int, tenant: bytes, keys: Sequence[bytes]) -> tuple[list[Object | None], int]:
        """`get` for each, and one `after` for all."""
        raise NotImplementedError

    def exist_many(self, now_ms: int, tenant: bytes, keys: Sequence[bytes], hit: T, miss: T) -> tuple[list[T], int]:
        """For each key `hit` or `miss` as given (bytes of the wire, say), and one `after` for all."""
        raise NotImplementedError

    def must_wait(self, found: Object) -> bool:
        """Whether readers of this object must wait for its owner's first ping (only while `unproven` is not empty)."""
        raise NotImplementedError

    def get_by_regex(self, now_ms: int, tenant: bytes, pattern: bytes) -> tuple[Code, list[Object], int]:
        """All readable objects whose key contains a match, leases extended."""
        raise NotImplementedError

    # --- puts ---
    def put_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig, request: int = 0
    ) -> tuple[Code, Object | None, int]:
        """Space for an object. A repeat with the same client and non-zero `request` gets the same answer."""
        raise NotImplementedError

    def put_end(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, kind: int = 4, checksum: int | None = None
    ) -> tuple[Code, int]:
        """The bytes are there: readable from here on (once durable)."""
        raise NotImplementedError

    def put_revoke(self, now_ms: int, client: bytes, tenant: bytes, key: bytes, kind: int = 4) -> tuple[Code, int]:
        """Give an unfinished put back."""
        raise NotImplementedError

    def upsert_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig, request: int = 0
    ) -> tuple[Code, Object | None, int]:
        """As `put_start`, but over an existing object.

        In place if no lease can be live, else beside it (readable until the end).
        """
        raise NotImplementedError

    def upsert_end(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, kind: int = 4, checksum: int | None = None
    ) -> tuple[Code, int]:
        raise NotImplementedError

    def upsert_revoke(self, now_ms: int, client: bytes, tenant: bytes, key: bytes, kind: int = 4) -> tuple[Code, int]:
        raise NotImplementedError

    # --- removes ---
    def remove(self, now_ms: int, tenant: bytes, key: bytes, force: bool, source: bytes = b"") -> tuple[Code, int]:
        """`source` names the caller (client or connection), for the bound on absent removes.

        `TRY_AGAIN` = wait for `after`, repeat.
        """
        raise NotImplementedError

    def remove_all(self, now_ms: int, tenant: bytes, force: bool) -> tuple[Code, int, int]:
        """(code, how many, after). In one go; `start_removal` does it in steps."""
        raise NotImplementedError

    def remove_by_regex(self, now_ms: int, tenant: bytes, pattern: bytes, force: bool) -> tuple[Code, int, int]:
        """(code, how many, after). A bad pattern is `BAD_PARAMS`; `pattern_error` says where."""
        raise NotImplementedError

    def replica_clear(
        self, now_ms: int, client: bytes, tenant: bytes, keys: Sequence[bytes], segment_name: str
    ) -> tuple[Code, list[bytes], int]:
        """Clear replicas on a segment (or, without a name, whole objects) that are this client's and not leased.

        Which keys were.
        """
        raise NotImplementedError

    # --- segments and clients ---
    def mount(self, now_ms: int, client: bytes, spec: SegmentSpec) -> tuple[Code, int]:
        raise NotImplementedError

    def remount(self, now_ms: int, client: bytes, specs: Iterable[SegmentSpec]) -> tuple[Code, int]:
        """All segments of a client, again: those that are there stay."""
        raise NotImplementedError

    def unmount(self, now_ms: int, client: bytes, segment: bytes) -> tuple[Code, int]:
        raise NotImplementedError

    def drain(self, now_ms: int, client: bytes, segment: bytes, grace_ms: int) -> tuple[Code, int]:
        """Graceful unmount: no new objects there, gone after `grace_ms`."""
        raise NotImplementedError

    def ping(self, now_ms: int, client: bytes) -> int:
        """A `ClientStatus`."""
        raise NotImplementedError

    def client_endpoints(self, client: bytes) -> list[str]:
        """For `query ip`: the transport endpoints of a client's segments."""
        raise NotImplementedError

    def segment_by_id(self, segment: bytes) -> Segment | None:
        raise NotImplementedError

    def segments_by_name(self, name: str) -> list[Segment]:
        raise NotImplementedError

    # --- copies, moves and their tasks ---
    def copy_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, source: str, targets: Sequence[str]
    ) -> tuple[Code, tuple[Replica, list[Replica]] | None, int]:
        raise NotImplementedError

    def copy_end(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> tuple[Code, int]:
        raise NotImplementedError

    def copy_revoke(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> tuple[Code, int]:
        raise NotImplementedError

    def move_start(
        self, now_ms: int, client: bytes, tenant: bytes, key: bytes, source: str, target: str
    ) -> tuple[Code, tuple[Replica, Replica | None] | None, int]:
        raise NotImplementedError

    def move_end(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> tuple[Code, int]:
        raise NotImplementedError

    def move_revoke(self, now_ms: int, client: bytes, tenant: bytes, key: bytes) -> tuple[Code, int]:
        raise NotImplementedError

    def create_copy_task(
        self, now_ms: int, tenant: bytes, key: bytes, targets: Sequence[str]
    ) -> tuple[Code, bytes, int]:
        """(code, 16-byte task id, after)."""
        raise NotImplementedError

    def create_move_task(
        self, now_ms: int, tenant: bytes, key: bytes, source: str, target: str
    ) -> tuple[Code, bytes, int]:
        raise NotImplementedError

    def fetch_tasks(self, now_ms: int, client: bytes, limit: int) -> list[Task]:
        raise NotImplementedError

    def finish_task(self, now_ms: int, client: bytes, task: bytes, status: int, message: str) -> tuple[Code, int]:
        raise NotImplementedError

    def query_task(self, task: bytes) -> tuple[Code, Task | None, int]:
        raise NotImplementedError

    # --- time ---
    def work(self, now_ms: int, budget: int = 256) -> bool:
        """Primary, between requests.

        Time-outs, limbo, eviction, at most about `budget` objects. True: there is more to do now.
        """
        raise NotImplementedError

    def next_work_ms(self, now_ms: int) -> int:
        """When `work` should be called next if it said that there is nothing to do.

        Milliseconds from now, at most 1000.
        """
        raise NotImplementedError

    # --- bulk: out of the primary ---
    def take_renewals(self, limit: int) -> tuple[list[tuple[bytes, bytes, int, int, int]], bool]:
        """([(tenant, key, put_seq, lease_end_ms, soft_pin_end_ms)], whether that is all of them), in leader time."""
        raise NotImplementedError

    def take_hints(self, limit: int) -> list[tuple[bytes, bytes, int]]:
        """[(tenant, key, put_seq)] of evictions not yet told; bounded, the oldest are dropped."""
        raise NotImplementedError

    # --- apply: standby and replay ---
    def apply(self, n: int, record: Record) -> None:
        """Apply record `n` (which must be `last_n + 1`, or be covered by a loaded snapshot).

        `Unappliable` if it does not fit.
        """
        raise NotImplementedError

    def apply_renewal(self, tenant: bytes, key: bytes, put_seq: int, lease_end_ms: int, soft_pin_end_ms: int) -> bool:
        """False: there is no such object; with the mark at the bulk's as-of that means this node has diverged."""
        raise NotImplementedError

    def apply_hint(self, tenant: bytes, key: bytes, put_seq: int) -> bool:
        """The primary evicted it: free its space. False: not here (any more), which is fine."""
        raise NotImplementedError

    def observe(self, leader_ms: int) -> None:
        """The leader's clock has reached this: limbo that is over by then is free."""
        raise NotImplementedError

    def expire_until(self, leader_ms: int) -> int:
        """Policy `expiry`, on a complete bulk batch of this epoch.

        Everything that ended before is gone. Returns how many.
        """
        raise NotImplementedError

    def gap_closed(self, leader_ms: int) -> None:
        """Bulk was missed until here: nothing counts as ended before `leader_ms` + the maximum term (H3)."""
        raise NotImplementedError

    # --- snapshots ---
    def export_slice(self, number: int) -> Slice:
        """All objects of slice 0..255, as of `last_n`."""
        raise NotImplementedError

    def export_keyless(self) -> Keyless:
        """The last slice."""
        raise NotImplementedError

    def load(self, keyless: Keyless, slices: Iterable[Slice]) -> None:
        """Fill an empty index.

        `last_n` becomes the lowest slice number: replay from there; records skip what is newer.
        """
        raise NotImplementedError

    # --- checks ---
    def check(self) -> None:
        """Raise `InvariantBroken` unless every invariant holds.

        Extents, accounting, counts. Slow: for tests and simulation.
        """
        raise NotImplementedError

    def digest(self) -> bytes:
        """A hash of the state that records alone determine.

        Equal on nodes that applied the same records, ghosts aside.
        """
        raise NotImplementedError
