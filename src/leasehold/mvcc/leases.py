"""Leases: TTL, expiry and attached keys. The store deletes the keys when a lease expires."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from leasehold.base.errors import InvalidArgument
from leasehold.base.limits import store_lease_ttl_s_max
from leasehold.mvcc.errors import LeaseExists, LeaseNotFound, LeaseTTLTooLarge

# Heap entries of revoked leases stay until their expiry: at most this many, plus the number of leases.
SPARE_ENTRIES = 1_000


class Lease:
    """One lease. It expires when the store's time reaches `expiry_ms`."""

    __slots__ = ("expiry_ms", "id", "keys", "ttl_s")

    def __init__(self, id: int, ttl_s: int, expiry_ms: int) -> None:
        self.id = id
        self.ttl_s = ttl_s
        self.expiry_ms = expiry_ms
        self.keys: set[bytes] = set()

    def renew(self, now_ms: int) -> None:
        """Give the lease its full TTL again."""
        self.expiry_ms = now_ms + self.ttl_s * 1000

    def renew_until(self, expiry_ms: int) -> None:
        """Set the expiry, for replay."""
        self.expiry_ms = expiry_ms

    def attach(self, key: bytes) -> None:
        self.keys.add(key)

    def detach(self, key: bytes) -> None:
        self.keys.discard(key)

    def remaining_ms(self, now_ms: int) -> int:
        return self.expiry_ms - now_ms


class LeaseBook:
    """All leases, and which of them expires next."""

    __slots__ = ("_by_expiry", "_leases", "_ttl_s_min")

    def __init__(self, ttl_s_min: int) -> None:
        self._leases: dict[int, Lease] = {}
        # (expiry, id). The expiry may be too early: a renewal does not touch the heap, the entry is corrected when it
        # is popped. So a renewal costs the same with one lease and with a million.
        self._by_expiry: list[tuple[int, int]] = []
        self._ttl_s_min = ttl_s_min

    def grant(self, now_ms: int, id: int, ttl_s: int) -> Lease:
        """A new lease. A TTL below the minimum is raised to it."""
        if type(ttl_s) is not int or type(id) is not int or not -(1 << 63) <= id < 1 << 63:
            raise InvalidArgument(f"a lease's TTL and id are whole numbers of 64 bits, not {ttl_s!r} and {id!r}")
        if ttl_s > store_lease_ttl_s_max:
            raise LeaseTTLTooLarge
        if id in self._leases:
            raise LeaseExists
        ttl_s = max(ttl_s, self._ttl_s_min)
        return self.add(id, ttl_s, now_ms + ttl_s * 1000)

    def add(self, id: int, ttl_s: int, expiry_ms: int) -> Lease:
        """Add a lease unchanged, for replay."""
        lease = Lease(id, ttl_s, expiry_ms)
        self._leases[id] = lease
        heappush(self._by_expiry, (expiry_ms, id))
        if len(self._by_expiry) > 2 * len(self._leases) + SPARE_ENTRIES:
            self._by_expiry = [(each.expiry_ms, each.id) for each in self._leases.values()]
            heapify(self._by_expiry)
        return lease

    def find(self, id: int) -> Lease | None:
        return self._leases.get(id)

    def require(self, id: int) -> Lease:
        lease = self._leases.get(id)
        if lease is None:
            raise LeaseNotFound
        return lease

    def remove(self, id: int) -> Lease:
        lease = self._leases.pop(id, None)
        if lease is None:
            raise LeaseNotFound
        return lease

    def attach(self, id: int, key: bytes) -> None:
        self._leases[id].attach(key)

    def detach(self, id: int, key: bytes) -> None:
        lease = self._leases.get(id)
        if lease is not None:
            lease.detach(key)

    def in_order_of_expiry(self) -> list[Lease]:
        return sorted(self._leases.values(), key=lambda lease: (lease.expiry_ms, lease.id))

    def next_expiry_ms(self) -> int | None:
        """A lower bound on the next expiry; None without leases."""
        return self._by_expiry[0][0] if self._by_expiry else None

    def ended(self, now_ms: int) -> list[Lease]:
        """The expired leases, in order of expiry. They stay until they are removed."""
        ended: dict[int, Lease] = {}  # by id: a lease that was granted twice has two entries in the heap
        while self._by_expiry and self._by_expiry[0][0] <= now_ms:
            expiry_ms, lease_id = heappop(self._by_expiry)
            lease = self._leases.get(lease_id)
            if lease is None:
                continue
            if lease.expiry_ms == expiry_ms:
                ended[lease_id] = lease
            else:
                heappush(self._by_expiry, (lease.expiry_ms, lease_id))
        return list(ended.values())

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())
