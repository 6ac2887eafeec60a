"""Find a working endpoint after a failure: all are probed at the same time, and the first to answer is used."""

from __future__ import annotations

import asyncio

from leasehold.coord.url import ConnectOptions
from leasehold.etcd.auth import Authenticator
from leasehold.etcd.endpoints import Endpoint, Endpoints
from leasehold.etcd.errors import Verdict, meaning
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.transport.failures import RpcFailed

# A read that a member can answer only if it reaches the leader. The key does not matter.
PROBE = rpc_pb2.RangeRequest(key=b"\0", count_only=True)
PROBE_S = 0.2
# The pause between two rounds over all endpoints, and before a busy store gets the next request.
PAUSE_S = 0.05


class Search:
    """One search at a time, however many calls wait for its result.

    The followers of a frozen leader still accept writes for a while, forward them to it, and lose them: the outcome of
    such a write would be unknown. So a probe is a read that needs the leader.
    """

    def __init__(self, endpoints: Endpoints, authenticator: Authenticator, options: ConnectOptions) -> None:
        self._endpoints = endpoints
        self._authenticator = authenticator
        self._attempt_timeout_s = options.attempt_timeout_s
        self._task: asyncio.Task[None] | None = None

    async def find(self, timeout_s: float) -> None:
        """Wait until a working endpoint is in use, at most `timeout_s`."""
        if len(self._endpoints) == 1:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._search())
        await asyncio.wait({self._task}, timeout=timeout_s)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _search(self) -> None:
        probes = [asyncio.ensure_future(self._probe(endpoint)) for endpoint in self._endpoints]
        try:
            done, _ = await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)
            winner = next(iter(done)).result()
            winner.proven = True
            self._endpoints.current = winner
        finally:
            for probe in probes:
                probe.cancel()
            await asyncio.gather(*probes, return_exceptions=True)

    async def _probe(self, endpoint: Endpoint) -> Endpoint:
        """Return once `endpoint` has answered, which means that it reaches a live leader.

        A read that was waiting when the leader was lost may never be answered. So the first time limits are short.
        """
        limit_s = min(PROBE_S, self._attempt_timeout_s)
        while True:
            if await endpoint.ready(limit_s, insist=False) and await self._answers(endpoint, limit_s):
                return endpoint
            limit_s = min(2 * limit_s, self._attempt_timeout_s)
            await asyncio.sleep(PAUSE_S)

    async def _answers(self, endpoint: Endpoint, limit_s: float) -> bool:
        try:
            metadata = await self._authenticator.metadata(endpoint, limit_s)
            await endpoint.unary["Range"](PROBE, timeout=limit_s, metadata=metadata)
        except RpcFailed as error:
            # A refusal is an answer too: the member contacts the leader before it checks permissions.
            return meaning(error).verdict in (Verdict.ANSWERED, Verdict.TOKEN)
        return True
