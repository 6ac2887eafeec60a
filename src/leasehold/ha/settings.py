"""Settings of a cluster of nodes: leader lease, replication, snapshots and the journal."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.errors import SettingError
from leasehold.base.settings import choice, count, duration, flag, ratio, size


@dataclass(frozen=True)
class HaSettings:
    """Section `[ha]`."""

    leader_ttl_ms: int = duration(
        "3s", low="1s", high="5m", help="leader lease: leadership expires this long after the last committed write"
    )
    leader_margin_ms: int = duration(
        "200ms", low="10ms", help="safety margin: a leader stops answering this long before its lease expires"
    )
    drift: float = ratio(0.01, high=0.2, help="largest difference in the rate of two clocks, as a fraction")
    flush_interval_ms: int = duration(
        "1s", low="100ms", high="10s", help="interval at which lease renewals are sent to the standbys"
    )
    urgent_flush_interval_ms: int = duration(
        "100ms", low="10ms", high="1s", help="flush interval when a lease is close to expiring (see `urgent_left`)"
    )
    store_timeout_ms: int = duration(
        "1s", low="50ms", help="timeout of one request to the store, which is then retried"
    )
    call_deadline_ms: int = duration(
        "20s", low="100ms", help="longest wait of a client's call, which then fails with an unknown outcome"
    )
    durability: str = choice(
        "sync", "sync", "buffered", "async",
        help="when a write is acknowledged: committed in the store, written to the buffer, or immediately",
    )  # fmt: skip
    async_records_max: int = count(10_000, low=1, help="records that `async` may acknowledge before the store has them")
    unlogged_ttl_s: int = count(
        60, low=10, high=3600, help="seconds that an unlogged batch (renewals and hints) stays in the store"
    )
    verify_ms: int = duration("30s", low="1s", help="interval at which a standby lists the whole journal to verify it")
    node_ttl_ms: int = duration("10s", low="2s", help="time that a dead node stays listed")
    snapshot_ms: int = duration("5m", low="1s", help="longest interval between two snapshots under load")
    snapshot_records: int = count(200_000, low=100, help="records between two snapshots")
    snapshot_tables: int = count(
        16384, low=1, high=16384, help="tables of the index per slice of a snapshot (fewer if they are large)"
    )
    copies: int = count(2, low=1, high=7, help="snapshots required before the journal is truncated (1 = no redundancy)")
    journal_batches_max: int = count(1_000_000, low=50, help="batches in the journal at which it is full")
    journal_bytes_max: int = size("512MiB", low="1MiB", help="size of the journal at which it is full")
    journal_full: str = choice(
        "one_copy", "one_copy", "refuse",
        help="reaction to a full journal: truncate with the leader's snapshot alone, or refuse puts",
    )  # fmt: skip
    snapshot_pin_ms: int = duration(
        "10m", low="1s", help="longest time that a node copying a snapshot may delay the truncation of the journal"
    )
    newest_level: bool = flag(
        True, help="whether a new cluster starts at the newest feature level that all its nodes can read"
    )
    history_max: int = count(200, low=10, high=10_000, help="changes of leadership kept in the history")

    def lapse_ms(self) -> int:
        """Time that a successor waits after the previous epoch's last write: the leader TTL plus the clock drift."""
        return self.leader_ttl_ms + int(self.leader_ttl_ms * self.drift) + 1

    def check(self) -> None:
        """Raise `SettingError` if two settings contradict each other."""
        needed_ms = 2 * self.flush_interval_ms + self.leader_margin_ms
        if self.leader_ttl_ms < needed_ms:
            raise SettingError(
                f"leader_ttl ({self.leader_ttl_ms} ms) must be at least two flush intervals plus leader_margin "
                f"({needed_ms} ms), or one lost write would cost the leadership: raise leader_ttl"
            )
        if self.leader_margin_ms <= self.leader_ttl_ms * self.drift:
            raise SettingError(
                f"leader_margin ({self.leader_margin_ms} ms) must be longer than the clock drift over leader_ttl "
                f"({self.leader_ttl_ms * self.drift:g} ms): raise leader_margin"
            )
