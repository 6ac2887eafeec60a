"""Storage clients: who is alive, and whose memory may be used after a complete restart."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.base.codes import ClientStatus
from leasehold.base.invariants import ensure
from leasehold.index.clock import LeaderClock
from leasehold.index.log import Log
from leasehold.index.model import Client, Object, Segment
from leasehold.index.space.space import Space

_ALL = 1 << 62


class Owners:
    """The storage clients, which own the memory of the segments.

    A client is alive while it pings. After a complete restart, or a long silence, no one knows which owners are still
    alive: their segments are *unproven* until the owner's first ping. Until then no reader or writer is sent there,
    and "not found" or "no space" is not answered on their account (H9, P7).

    Invariant: `unproven` holds the incarnations of exactly the mounted segments that are not `proven`.
    """

    __slots__ = ("_clock", "_log", "_space", "clients", "unproven", "unproven_before_n")

    def __init__(self, clock: LeaderClock, log: Log, space: Space) -> None:
        self._clock = clock
        self._log = log
        self._space = space
        self.clients: dict[bytes, Client] = {}
        self.unproven: set[int] = set()
        # This epoch began with the owners of segments mounted before this record unproven; 0: none.
        self.unproven_before_n = 0

    def ping(self, now_ms: int, client: bytes) -> int:
        """A client is alive. Returns a `ClientStatus`: an unknown client must mount its segments again."""
        known = self.clients.get(client)
        if known is None:
            return ClientStatus.NEED_REMOUNT
        known.seen = now_ms + self._clock.offset
        if self.unproven:
            segments = self._space.segments.by_client.get(client)
            self.prove([each for each in segments if not each.awaits_mount])
            if any(each.awaits_mount for each in segments):
                return ClientStatus.NEED_REMOUNT  # its ping proves no adopted segment: it must describe them (P3)
        return ClientStatus.OK

    def seen(self, client: bytes, now: int) -> None:
        """A client has mounted a segment, or is known from a snapshot."""
        known = self.clients.get(client)
        if known is None:
            self.clients[client] = Client(client, now)
        else:
            known.seen = max(known.seen, now)

    def all_seen(self, now_ms: int) -> None:
        """No client could ping for a while: every client's time starts again. That proves no owner (H9)."""
        for client in self.clients.values():
            client.seen = max(client.seen, now_ms + self._clock.offset)

    def begin_epoch(self, now: int, unproven_before_n: int) -> None:
        """An epoch began: every client's time starts again."""
        self.unproven_before_n = unproven_before_n
        for client in self.clients.values():
            client.seen = now

    def silent(self, now: int, client_ttl_ms: int) -> list[bytes]:
        """The clients that have not pinged for longer than `client_ttl_ms`."""
        start = self._clock.epoch_start
        return [each.id for each in self.clients.values() if now - max(each.seen, start) > client_ttl_ms]

    def forget(self, client: bytes) -> None:
        """A client is dead."""
        self.clients.pop(client, None)

    def segment_ended(self, incarnation: int) -> None:
        """A segment was unmounted."""
        self.unproven.discard(incarnation)

    def endpoints_of(self, client: bytes) -> list[str]:
        """The transport endpoints of a client's segments."""
        return sorted({segment.spec.endpoint for segment in self._space.segments.by_client.get(client)})

    # --- unproven owners ---

    def distrust(self, before_n: int = _ALL) -> None:
        """After a complete restart: wait for the owner's first ping before a segment is used (H9).

        An owner that mounted with record `before_n` or later was alive then. An adopted segment stays unproven until
        its owner has mounted it.
        """
        segments = self._space.segments
        unproven = [each for each in segments.values() if each.incarnation < before_n or each.awaits_mount]
        self._space.set_proven(segments.values(), True)
        self._space.set_proven(unproven, False)
        self.unproven = {segment.incarnation for segment in unproven}

    def suspect_all(self) -> None:
        """Leader: no owner could be reached for longer than the client TTL. Wait for each again (H9)."""
        self.unproven_before_n = self._log.last_n + 1
        self.distrust(self.unproven_before_n)

    def stalled(self, now: int, stalled_ms: int, client_ttl_ms: int) -> None:
        """Leader: this process did not run for a while (a paused machine), and received no pings.

        That time does not count against the clients. If it was longer than their TTL, an owner may have been replaced
        in it: wait for each again (H9).
        """
        for client in self.clients.values():
            client.seen = min(now, client.seen + stalled_ms)
        if stalled_ms > client_ttl_ms:
            self.suspect_all()

    def still_unproven_before_n(self) -> int:
        """Leader: which owners it waits for, for its successors. 0 once each has pinged or was declared dead."""
        if not self.unproven:
            self.unproven_before_n = 0
        return self.unproven_before_n

    def set_unproven_before_n(self, n: int) -> None:
        """Standby: which owners the leader waits for."""
        self.unproven_before_n = n

    def prove(self, segments: Iterable[Segment]) -> None:
        """The owner of these segments is alive, and has mounted them."""
        segments = [segment for segment in segments if not segment.proven]
        if segments:
            self.unproven.difference_update(segment.incarnation for segment in segments)
            self._space.set_proven(segments, True)

    def must_wait(self, found: Object) -> bool:
        """Whether readers of this object must wait for an owner's first ping (only while `unproven` is not empty)."""
        return any(not replica.segment.proven for replica in found.replicas)

    def space_must_wait(self, native: bool) -> bool:
        """Whether all space of this kind awaits an owner's first ping: "no space" is not known yet."""
        segments = self._space.segments
        return not segments.placeable[native] and any(segments[each].native == native for each in self.unproven)

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariant holds."""
        unproven = {segment.incarnation for segment in self._space.segments.values() if not segment.proven}
        ensure(unproven == self.unproven, "unproven segments are known", unproven, self.unproven)
