"""Bugs of the quotas, planted from outside."""

from __future__ import annotations

import msgspec

from leasehold.base.codes import Code
from leasehold.index.index import Index
from leasehold.index.model import Object
from leasehold.index.quotas import Quotas
from leasehold.index.snapshot_export import SnapshotExport
from leasehold.index.snapshot_format import Keyless
from leasehold.index.space.walk import QuarantineWalk
from leasehold.index.tenants import Tenants


def bend_quotas(bugs: frozenset[str], index: Index) -> None:
    """Plant bugs into a new index."""
    if "snapshot-without-quotas" in bugs:
        index.export.__class__ = ExportWithoutQuotas
    if "quota-never-released" in bugs:
        index.quotas.__class__ = GrowingUsage
    if "quota-after-the-put" in bugs:
        index.tenants.__class__ = LateTenants
    if "quota-evicts-leased" in bugs:
        index.tenants.__class__ = GreedyTenants


class ExportWithoutQuotas(SnapshotExport):
    """Snapshots lack the quotas."""

    __slots__ = ()

    def keyless(self, walk: QuarantineWalk | None = None) -> Keyless:
        return msgspec.structs.replace(super().keyless(walk), quotas=())


class GrowingUsage(Quotas):
    """Space that leaves its object stays charged."""

    __slots__ = ()

    def charge(self, tenant: bytes, changed_bytes: int) -> None:
        super().charge(tenant, max(0, changed_bytes))


class LateTenants(Tenants):
    """The put itself does not count."""

    __slots__ = ()

    def admit(self, now: int, tenant: bytes, wanted_bytes: int, rounds: int = 2) -> Code:
        return super().admit(now, tenant, 1, rounds)


class _NoLeases:
    """Every lease has expired."""

    def end_of(self, entry: Object) -> int:
        return 0


class GreedyTenants(Tenants):
    """Leased objects are evicted for a quota."""

    __slots__ = ()

    def _evict(self, now: int, tenant: bytes, missing: int) -> None:
        leases, self._leases = self._leases, _NoLeases()  # type: ignore[assignment] # a bug from outside
        super()._evict(now, tenant, missing)
        self._leases = leases
