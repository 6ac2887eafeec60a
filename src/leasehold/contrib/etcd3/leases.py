"""A lease, as python-etcd3 has it: it is renewed only by `refresh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.mvcc.model import LeaseKeepAliveResult, LeaseTimeToLiveResult

if TYPE_CHECKING:
    from leasehold.contrib.etcd3.client import Etcd3Client


class LeaseInfo:
    """The answer of `get_lease_info`."""

    def __init__(self, found: LeaseTimeToLiveResult) -> None:
        self.header = found.header
        self.ID = found.id
        self.TTL = found.ttl_s
        self.grantedTTL = found.granted_ttl_s
        self.keys = list(found.keys)


class LeaseRefreshed:
    """One answer of `refresh_lease`. A `TTL` of 0 or less means that the lease does not exist."""

    def __init__(self, found: LeaseKeepAliveResult) -> None:
        self.header = found.header
        self.ID = found.id
        self.TTL = found.ttl_s


class Lease:
    """Keys that are put with it are deleted when it expires or is revoked."""

    def __init__(self, lease_id: int, ttl: int, etcd_client: Etcd3Client) -> None:
        self.id = lease_id
        self.ttl = ttl
        self.etcd_client = etcd_client

    def revoke(self) -> None:
        """Revoke this lease and delete its keys."""
        self.etcd_client.revoke_lease(self.id)

    def refresh(self) -> list[LeaseRefreshed]:
        """Renew this lease for its whole TTL."""
        return list(self.etcd_client.refresh_lease(self.id))

    @property
    def remaining_ttl(self) -> int:
        """Seconds until it expires; -1 if it does not exist."""
        return self.etcd_client.get_lease_info(self.id).TTL

    @property
    def granted_ttl(self) -> int:
        """The TTL that the store granted, in seconds."""
        return self.etcd_client.get_lease_info(self.id).grantedTTL

    @property
    def keys(self) -> list[bytes]:
        """The keys that expire with it."""
        return self.etcd_client.get_lease_info(self.id).keys
