"""One term of an authority: its epoch, its leader lease, and from when it may write. Pure.

Invariants:
- the epoch is fixed, and version numbers only grow, so no version is used twice;
- nothing is written before `writes_from_ms`: leases are not stored, so any that a predecessor granted may be valid
  until then;
- a closed term stays closed.
"""

from __future__ import annotations

from leasehold.base.invariants import ensure
from leasehold.cache.model import Version
from leasehold.leases.arithmetic import outlasts_ms


class AuthorityTerm:
    """`lease_before_ms` is the longest lease that a predecessor may have granted (0: none is out)."""

    def __init__(self, now_ms: int, epoch: int, lease_before_ms: int, drift_ppm: int, serve_until_ms: int) -> None:
        self.epoch = epoch
        self.writes_from_ms = now_ms + self._restart_wait_ms(lease_before_ms, drift_ppm)
        self.closed = False
        self.stopping = False
        self.lease_bound_settled = False
        self._serve_until_ms = serve_until_ms
        self._n = 0

    def _restart_wait_ms(self, lease_before_ms: int, drift_ppm: int) -> int:
        return outlasts_ms(lease_before_ms, drift_ppm) if lease_before_ms else 0

    def may_serve(self, now_ms: int) -> bool:
        """Whether this authority provably holds the leader lease."""
        return not self.closed and now_ms < self._serve_until_ms

    def extend(self, until_ms: int) -> None:
        """Serve until this time."""
        self._serve_until_ms = until_ms

    def next_version(self) -> Version:
        """A new version, larger than all before."""
        self._n += 1
        return Version(self.epoch, self._n)

    def settle_lease_bound(self) -> None:
        """Every lease of a predecessor has expired, so the store may lower its maximum lease term."""
        self.lease_bound_settled = True

    def stop(self) -> None:
        """Grant no more leases and accept no more writes."""
        self.stopping = True

    def close(self) -> None:
        """Answer nothing more."""
        self.closed = True

    def check(self, now_ms: int) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        ensure(self._n >= 0, "version numbers only grow", self._n)
        ensure(not self.lease_bound_settled or now_ms >= self.writes_from_ms, "the lease bound was settled too early")
