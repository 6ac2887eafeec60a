"""How a cluster of nodes keeps time and keeps its journal."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.errors import SettingError
from leasehold.base.settings import choice, count, duration, ratio, size


@dataclass(frozen=True)
class HaSettings:
    leader_ttl_ms: int = duration("3s", low="1s", high="5m", help="how long a leader counts without a committed write")
    margin_ms: int = duration("200ms", low="10ms", help="a leader stops answering this much before its time is over")
    drift: float = ratio(0.01, high=0.2, help="how differently clocks may tick")
    beat_ms: int = duration("1s", low="100ms", high="10s", help="how often lease renewals are told to the standbys")
    urgent_ms: int = duration("100ms", low="10ms", high="1s", help="the same, if `urgent_left` says so")
    store_timeout_ms: int = duration("1s", low="50ms", help="one request to the store; unanswered ones are repeated")
    call_deadline_ms: int = duration("20s", low="100ms", help="after that a caller hears: outcome unknown")
    durability: str = choice("sync", "sync", "buffered", "async", help="what an acknowledgement waits for")
    async_records_max: int = count(10_000, low=1, help="records that `async` may have acknowledged ahead of the store")
    bulk_ttl_s: int = count(60, low=10, high=3600, help="seconds that renewals stay in the store")
    verify_ms: int = duration("30s", low="1s", help="how often a standby lists the journal again, to verify")
    node_ttl_ms: int = duration("10s", low="2s", help="how long a dead node is listed")
    snapshot_ms: int = duration("5m", low="1s", help="at most this long between two snapshots under load")
    snapshot_records: int = count(200_000, low=100, help="records after which the next snapshot is taken")
    snapshot_tables: int = count(
        16384, low=1, high=16384, help="tables of the index that one slice of a snapshot has, unless they are large"
    )
    copies: int = count(
        2, low=1, high=7, help="nodes whose snapshots must cover what leaves the journal (1: stated mode)"
    )
    journal_batches_max: int = count(1_000_000, low=50, help="batches that the journal may hold before `journal_full`")
    journal_bytes_max: int = size("512MiB", low="1MiB", help="bytes that the journal may hold before `journal_full`")
    journal_full: str = choice(
        "one_copy", "one_copy", "refuse",
        help="what a full journal means: the leader's snapshot alone makes room, or puts are refused",
    )  # fmt: skip
    pin_ms: int = duration("10m", low="1s", help="how long a node that streams a snapshot may hold the floor")
    history_max: int = count(200, low=10, high=10_000, help="entries kept in the history")

    def lapse_ms(self) -> int:
        """How long a successor waits after the old epoch's last write: its TTL, and what clocks may differ by."""
        return self.leader_ttl_ms + int(self.leader_ttl_ms * self.drift) + 1

    def check(self) -> None:
        """The laws between settings; raises with the law that does not hold."""
        if self.leader_ttl_ms < 2 * self.beat_ms + self.margin_ms:
            raise SettingError(
                f"leader_ttl ({self.leader_ttl_ms} ms) must be at least two beats and the margin "
                f"({2 * self.beat_ms + self.margin_ms} ms): one lost write must not cost the leadership"
            )
        if self.margin_ms <= self.leader_ttl_ms * self.drift:
            raise SettingError("margin must be longer than what clocks may differ by over leader_ttl")
