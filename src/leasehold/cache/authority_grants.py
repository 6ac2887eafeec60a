"""The leases that the authority grants to clients, and how long they are. Pure.

Invariants:
- while a write is pending, no lease on its key ends later than `leases_end_ms` of that write, so readers cannot
  starve it;
- once the new value may be in the store, no lease on the old one is granted;
- a term that is stopping grants nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.base.invariants import ensure
from leasehold.cache.authority_term import AuthorityTerm
from leasehold.cache.key_state import KeyState, PendingWrite, WriteRequest
from leasehold.cache.model import Item
from leasehold.cache.settings import AuthoritySettings
from leasehold.leases.adaptive import adaptive_term_ms
from leasehold.leases.table import LeaseTable


class Grants:
    def __init__(self, settings: AuthoritySettings, term: AuthorityTerm) -> None:
        self.settings = settings
        self.adaptive = settings.adaptive
        self.table = LeaseTable(settings.holders_per_key_max)
        self._term = term

    def count(self, now_ms: int, state: KeyState, *, reads: int = 0, writes: int = 0) -> None:
        """With `adaptive`: note uses of the key, from which the length of its leases is derived."""
        if self.adaptive:
            state.rates.count(now_ms, reads, writes)

    def item(self, now_ms: int, state: KeyState, client: str, seq: int) -> Item:
        """The key's value for request `seq` of `client`, with a lease if one may be granted now."""
        lease_ms = self.grant(now_ms, state, client, seq)
        return Item(state.key, state.value, state.version, lease_ms)

    def grant(self, now_ms: int, state: KeyState, client: str, seq: int) -> int:
        """Grant a lease to `client` and return its length in ms; 0 if none may be granted."""
        lease_ms = self.lease_ms(now_ms, state)
        if lease_ms <= 0:
            return 0
        self.table.grant(state.key, client, now_ms + lease_ms, seq)
        return lease_ms

    def lease_ms(self, now_ms: int, state: KeyState) -> int:
        """How long a lease on this key may be now; 0 or less for none."""
        if self._term.stopping:
            return 0
        lease_ms = self.settings.term_ms
        if self.adaptive:
            sharers = len(self.table.live_holders(state.key, now_ms))
            lease_ms = adaptive_term_ms(state.rates, sharers, self.settings.term_min_ms, lease_ms)
        pending = state.pending
        if pending is None:
            return lease_ms
        if pending.maybe_stored():
            return 0
        if pending.request.write.mode == "wait":
            return self._capped_ms(now_ms, pending, lease_ms)
        return self._during_callback_ms(now_ms, pending, lease_ms)

    def _capped_ms(self, now_ms: int, pending: PendingWrite, lease_ms: int) -> int:
        """A new lease on the old value ends no later than those already granted."""
        return min(lease_ms, pending.leases_end_ms - now_ms)

    def _during_callback_ms(self, now_ms: int, pending: PendingWrite, lease_ms: int) -> int:
        """None: a client that reads again after its acknowledgement would keep the old value too long."""
        return 0

    def exempt_writer(self, key: bytes, request: WriteRequest) -> None:
        """The writer has dropped its copy, and keeps nothing that it requested before its write was answered."""
        self.table.release_requested_before(key, request.client, request.write.seq)

    def check(self, pending: Iterable[KeyState]) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        self.table.check()
        for state in pending:
            write = state.pending
            end_ms = self.table.latest_end_ms(state.key)
            ensure(write is None or end_ms <= write.leases_end_ms, "a lease outlives the pending write", state.key)
