"""Calls about leases. All of them can be repeated, which is more than etcd promises:

- a grant names its id itself, so that a repeated one is the same lease;
- a revocation that finds the lease gone has reached what it wanted.
"""

from __future__ import annotations

import secrets
from typing import Any

from leasehold.base.errors import UnknownOutcome
from leasehold.etcd import codec
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.retry import Caller
from leasehold.mvcc.errors import LeaseExists, LeaseNotFound
from leasehold.mvcc.model import (
    LeaseGrantResult,
    LeaseKeepAliveResult,
    LeaseListResult,
    LeaseRevokeResult,
    LeaseTimeToLiveResult,
)


def random_lease_id() -> int:
    """A lease id that nobody else will choose: 63 random bits, not 0."""
    return secrets.randbelow(2**63 - 1) + 1


class LeaseCalls:
    """The lease half of a client, but for watching over renewals, which the engine does."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def grant(self, ttl_s: int, lease_id: int, timeout_s: float | None) -> LeaseGrantResult:
        """A grant without an id may be repeated; one with an id the caller chose, only the caller may repeat."""
        request = rpc_pb2.LeaseGrantRequest(TTL=ttl_s, ID=lease_id or random_lease_id())
        try:
            answer = await self._caller.call("LeaseGrant", request, timeout_s, safe=False)
        except UnknownOutcome:
            if lease_id:
                raise
            return await self._grant_again(request, timeout_s)
        return LeaseGrantResult(codec.header(answer.header), answer.ID, answer.TTL)

    async def _grant_again(self, request: rpc_pb2.LeaseGrantRequest, timeout_s: float | None) -> LeaseGrantResult:
        try:
            answer = await self._caller.call("LeaseGrant", request, timeout_s, safe=True)
        except LeaseExists:  # the first one was done after all
            found = await self.time_to_live(request.ID, False, timeout_s)
            return LeaseGrantResult(found.header, found.id, found.granted_ttl_s)
        return LeaseGrantResult(codec.header(answer.header), answer.ID, answer.TTL)

    async def revoke(self, lease_id: int, timeout_s: float | None) -> LeaseRevokeResult:
        request = rpc_pb2.LeaseRevokeRequest(ID=lease_id)
        try:
            answer = await self._caller.call("LeaseRevoke", request, timeout_s, safe=False)
        except UnknownOutcome:
            return await self._revoke_again(request, timeout_s)
        return LeaseRevokeResult(codec.header(answer.header))

    async def _revoke_again(self, request: rpc_pb2.LeaseRevokeRequest, timeout_s: float | None) -> LeaseRevokeResult:
        try:
            answer = await self._caller.call("LeaseRevoke", request, timeout_s, safe=True)
        except LeaseNotFound:  # the first one was done after all, or the lease has expired: gone is gone
            return LeaseRevokeResult((await self.time_to_live(request.ID, False, timeout_s)).header)
        return LeaseRevokeResult(codec.header(answer.header))

    async def keep_alive_once(self, lease_id: int, timeout_s: float | None) -> LeaseKeepAliveResult:
        """Renew once; a TTL of 0 or less in the answer says that the lease is gone."""
        request = rpc_pb2.LeaseKeepAliveRequest(ID=lease_id)
        answer: Any = await self._caller.call("LeaseKeepAlive", request, timeout_s, safe=True)
        return LeaseKeepAliveResult(codec.header(answer.header), answer.ID, answer.TTL)

    async def time_to_live(self, lease_id: int, keys: bool, timeout_s: float | None) -> LeaseTimeToLiveResult:
        request = rpc_pb2.LeaseTimeToLiveRequest(ID=lease_id, keys=keys)
        answer = await self._caller.call("LeaseTimeToLive", request, timeout_s, safe=True)
        return LeaseTimeToLiveResult(
            codec.header(answer.header), answer.ID, answer.TTL, answer.grantedTTL, tuple(answer.keys)
        )

    async def list(self, timeout_s: float | None) -> LeaseListResult:
        answer = await self._caller.call("LeaseLeases", rpc_pb2.LeaseLeasesRequest(), timeout_s, safe=True)
        return LeaseListResult(codec.header(answer.header), tuple([item.ID for item in answer.leases]))
