"""Calls on leases. All of them can be retried, which etcd alone does not guarantee:

- the client chooses the id of a grant, so that a retry grants the same lease;
- a revocation that does not find the lease has succeeded.
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
    """A lease id that no other client will choose: 63 random bits, not 0."""
    return secrets.randbelow(2**63 - 1) + 1


class LeaseCalls:
    """The lease calls of a client. The keep-alive engine sends the periodic renewals."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def grant(self, ttl_s: int, lease_id: int, timeout_s: float | None) -> LeaseGrantResult:
        """A grant without an id is retried here. If the caller chose the id, only the caller may retry."""
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
        except LeaseExists:  # the first attempt succeeded
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
        except LeaseNotFound:  # the first attempt succeeded, or the lease has expired
            return LeaseRevokeResult((await self.time_to_live(request.ID, False, timeout_s)).header)
        return LeaseRevokeResult(codec.header(answer.header))

    async def keep_alive_once(self, lease_id: int, timeout_s: float | None) -> LeaseKeepAliveResult:
        """Renew once. A TTL of 0 or less in the answer means that the lease does not exist."""
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
