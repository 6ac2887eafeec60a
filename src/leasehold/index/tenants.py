"""Commands about tenants: their quotas, and whether a put is within them."""

from __future__ import annotations

from msgspec import Struct

from leasehold.base.codes import Code
from leasehold.base.limits import inline_evictions_max, quota_bytes_max, tenant_bytes_max, tenants_max
from leasehold.index.catalog import Catalog
from leasehold.index.decisions import Decisions
from leasehold.index.eviction import Eviction
from leasehold.index.features import Features
from leasehold.index.leases import Leases
from leasehold.index.log import Log
from leasehold.index.quotas import Quotas
from leasehold.index.records import SetQuota
from leasehold.index.replies import Answered
from leasehold.index.space.space import Space
from leasehold.index.tables import TABLES

_EVICTION_ROUNDS = 2


class TenantQuota(Struct, frozen=True):
    """A tenant, in the words of the C++ master. Admission is closed for a tenant without a policy."""

    tenant: bytes
    requested_bytes: int
    effective_bytes: int
    charged_bytes: int

    @property
    def has_policy(self) -> bool:
        return self.requested_bytes > 0

    @property
    def over_quota(self) -> bool:
        return self.charged_bytes > self.effective_bytes


class Tenants:
    """Quotas, where they are enforced: every tenant then needs one."""

    __slots__ = ("_catalog", "_cursors", "_decisions", "_eviction", "_features", "_leases", "_log", "_quotas", "_space")

    def __init__(
        self,
        log: Log,
        features: Features,
        decisions: Decisions,
        space: Space,
        leases: Leases,
        catalog: Catalog,
        eviction: Eviction,
        quotas: Quotas,
    ) -> None:
        self._log = log
        self._features = features
        self._decisions = decisions
        self._space = space
        self._leases = leases
        self._catalog = catalog
        self._eviction = eviction
        self._quotas = quotas
        self._cursors: dict[bytes, int] = {}  # where the search for objects to evict continues: a number of a table

    # --- policies ---

    def set_quota(self, now_ms: int, tenant: bytes, requested_bytes: int) -> Answered[TenantQuota]:
        """Give a tenant a quota, or another one."""
        policies = self._quotas.policies
        bad = not 0 < requested_bytes <= quota_bytes_max or not 0 < len(tenant) <= tenant_bytes_max
        if bad or (tenant not in policies and len(policies) >= tenants_max):
            self._log.refuse("bad quota")
            return Answered(Code.BAD_PARAMS, self._of(tenant), 0)
        if not self._features.allow(SetQuota):
            self._log.refuse("the feature level is too low for quotas")
            return Answered(Code.NOT_NOW, self._of(tenant), 0)
        if self._log.refuses_records():
            return Answered(Code.NO_SPACE, self._of(tenant), 0)
        n = self._decisions.emit(SetQuota(now_ms, tenant, requested_bytes))
        return Answered(Code.OK, self._of(tenant), n)

    def delete_quota(self, now_ms: int, tenant: bytes) -> Answered[TenantQuota]:
        """Take the quota of a tenant away: it can store nothing any more. It must have no objects."""
        if tenant not in self._quotas.policies:
            return Answered(Code.NOT_FOUND, self._of(tenant), self._quotas.changed_n)
        if self._quotas.used(tenant):
            return Answered(Code.TENANT_NOT_EMPTY, self._of(tenant), self._log.last_n)
        n = self._decisions.emit(SetQuota(now_ms, tenant, 0))
        return Answered(Code.OK, self._of(tenant), n)

    def delete_all(self, now_ms: int) -> None:
        """The feature level is about to be lowered: no quota may be left."""
        for tenant in list(self._quotas.policies):
            self._decisions.emit(SetQuota(now_ms, tenant, 0))

    def quotas(self, now_ms: int) -> Answered[list[TenantQuota]]:
        """All tenants with a quota or with objects."""
        return Answered(Code.OK, [self._of(tenant) for tenant in self._quotas.tenants()], self._log.last_n)

    def _of(self, tenant: bytes) -> TenantQuota:
        quotas = self._quotas
        effective = quotas.effective(self._space.total_bytes).get(tenant, 0)
        return TenantQuota(tenant, quotas.policies.get(tenant, 0), effective, quotas.used(tenant))

    # --- puts ---

    def admit(self, now: int, tenant: bytes, wanted_bytes: int, rounds: int = _EVICTION_ROUNDS) -> Code:
        """Whether a tenant may use `wanted_bytes` more. If not, unleased objects of its own are evicted first.

        `rounds`: attempts to evict; 0 for copies, which are not worth an object.
        """
        quotas = self._quotas
        if tenant not in quotas.policies:
            self._log.refuse("tenant without a quota")
            return Code.TENANT_NOT_REGISTERED
        for attempt in range(rounds + 1):
            allowed = quotas.effective(self._space.total_bytes)[tenant]
            missing = quotas.used(tenant) + wanted_bytes - allowed
            if missing <= 0:
                return Code.OK
            if wanted_bytes > allowed or attempt == rounds:
                break
            self._evict(now, tenant, missing)
        self._log.refuse("quota exceeded")
        return Code.TENANT_QUOTA_EXCEEDED

    @property
    def changed_n(self) -> int:
        """The record that a refusal shows."""
        return self._quotas.changed_n

    def _evict(self, now: int, tenant: bytes, missing: int) -> None:
        """Evict objects of this tenant that no lease or pin protects, table after table."""
        tables = self._catalog.tables.get(tenant)
        if tables is None:
            return
        goal, looks = self._quotas.used(tenant) - missing, inline_evictions_max
        start = self._cursors.pop(tenant, 0)
        for step in range(TABLES):
            number = (start + step) % TABLES
            for entry in list(tables[number].values()):
                looks -= 1
                protected = entry.hard_pin or entry.soft_pin_end > now or self._leases.end_of(entry) > now
                if entry.visible and not protected and not self._catalog.is_busy(entry) and self._catalog.settle(entry):
                    self._eviction.evict(entry)
            if looks <= 0 or self._quotas.used(tenant) <= goal:
                if len(self._cursors) < tenants_max:
                    self._cursors[tenant] = number
                return
