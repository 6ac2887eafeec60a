"""The calls of the keep-alive engine: one connection at a time, to one endpoint after the other."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence

from leasehold.coord.url import ConnectOptions
from leasehold.etcd.auth import REQUIRE_LEADER, Authenticator
from leasehold.etcd.endpoints import Endpoints
from leasehold.etcd.errors import Verdict, meaning
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.transport.channel import Metadata
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.mvcc.errors import Code

OnAnswer = Callable[[int, int], None]  # (lease id, TTL in seconds)


class RenewalCalls:
    """Belongs to the engine's event loop. Connects when there is something to renew."""

    def __init__(self, addresses: Sequence[str], options: ConnectOptions, tls: ssl.SSLContext | None) -> None:
        self._endpoints = Endpoints(addresses, tls)
        self._authenticator = Authenticator(options)

    def __len__(self) -> int:
        return len(self._endpoints)

    @property
    def address(self) -> str:
        """The endpoint in use."""
        return self._endpoints.current.address

    async def renew(self, lease_ids: Sequence[int], wait_s: float, on_answer: OnAnswer) -> None:
        """Renew all of them in one stream, and pass on the answers as they arrive. Raises `RpcFailed`.

        `wait_s` limits each step: the connection, the token, the answers. Without an error, the server ended the
        stream; it may not have answered every lease.
        """
        endpoint = self._endpoints.current
        if not await endpoint.ready(wait_s, insist=len(self) == 1):
            reason = f"no connection: {endpoint.channel.failure or 'not in time'}"
            raise RpcFailed(Code.UNAVAILABLE, reason, sent=False)
        metadata: Metadata = ()
        try:
            metadata = await self._authenticator.metadata(endpoint, wait_s)
            stream = endpoint.streams["LeaseKeepAlive"](metadata + REQUIRE_LEADER)
            try:
                for lease_id in lease_ids:
                    stream.send(rpc_pb2.LeaseKeepAliveRequest(ID=lease_id), last=lease_id == lease_ids[-1])
                async with asyncio.timeout(wait_s):
                    await stream.deliver(lambda answer: on_answer(answer.ID, answer.TTL))
            finally:
                stream.cancel()
        except RpcFailed as error:
            if meaning(error).verdict is Verdict.TOKEN:
                self._authenticator.forget(metadata)
            raise
        except TimeoutError:
            raise RpcFailed(Code.DEADLINE_EXCEEDED, "no answer in time") from None

    def leave(self) -> None:
        """Use the next endpoint, if there is another, and a new connection in any case: this one may be half open."""
        endpoint = self._endpoints.current
        endpoint.channel.drop("it did not answer")
        self._endpoints.leave(endpoint)

    async def close(self) -> None:
        await self._endpoints.close()
        await asyncio.sleep(0)  # transports close their sockets in the next turn of the loop
