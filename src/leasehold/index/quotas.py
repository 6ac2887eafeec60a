"""Quotas of tenants: the policies, which are recorded, and the usage, which follows from the objects."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.base.invariants import ensure
from leasehold.index.coverage import Coverage
from leasehold.index.decisions import Handlers
from leasehold.index.model import CopyJob, Object
from leasehold.index.records import SetQuota


class Quotas:
    """How much memory each tenant may use, and uses.

    A replica is charged from the record that hands out its space until the space leaves its object; quarantined space
    is charged to no tenant. Evictions have no records, so the usage differs between nodes, as the objects do.

    Invariant: `used` is the sum over the replicas of all objects, finished or not, and of copies under way.
    """

    __slots__ = ("_coverage", "_used", "changed_n", "policies")

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._used: dict[bytes, int] = {}
        self.policies: dict[bytes, int] = {}  # requested bytes, by tenant
        self.changed_n = 0  # the last record that changed a policy

    def handlers(self) -> Handlers:
        """The function that applies each kind of record."""
        return {SetQuota: self._set}

    def _set(self, n: int, record: SetQuota) -> None:
        if self._coverage.covers_keyless(n):
            return
        self.changed_n = n
        if record.requested_bytes:
            self.policies[record.tenant] = record.requested_bytes
        else:
            self.policies.pop(record.tenant, None)

    def load(self, policies: Iterable[tuple[bytes, int]]) -> None:
        """The policies of a snapshot."""
        self.policies = dict(policies)

    def charge(self, tenant: bytes, changed_bytes: int) -> None:
        """The usage of a tenant changes by this."""
        used = self._used.get(tenant, 0) + changed_bytes
        if used:
            self._used[tenant] = used
        else:
            self._used.pop(tenant, None)

    def used(self, tenant: bytes) -> int:
        """The bytes that a tenant uses."""
        return self._used.get(tenant, 0)

    def tenants(self) -> list[bytes]:
        """Tenants with a policy or with objects."""
        return sorted({*self.policies, *self._used})

    def effective(self, capacity_bytes: int) -> dict[bytes, int]:
        """The bytes that each tenant may use: those requested, or its part of a pool smaller than their sum.

        Remaining bytes go to the largest remainders, as in the C++ master.
        """
        requested = sum(self.policies.values())
        if requested <= capacity_bytes:
            return self.policies
        parts = {tenant: divmod(capacity_bytes * wanted, requested) for tenant, wanted in self.policies.items()}
        left = capacity_bytes - sum(whole for whole, _ in parts.values())
        order = sorted(parts, key=lambda tenant: (-parts[tenant][1], tenant))
        return {tenant: parts[tenant][0] + (place < left) for place, tenant in enumerate(order)}

    def check(self, holders: Iterable[Object | CopyJob]) -> None:
        """Raise `InvariantBroken` unless the invariant holds."""
        used: dict[bytes, int] = {}
        for holder in holders:
            if holder.replicas:
                used[holder.tenant] = used.get(holder.tenant, 0) + holder.size * len(holder.replicas)
        ensure(used == self._used, "the usage of each tenant is known", used, self._used)
