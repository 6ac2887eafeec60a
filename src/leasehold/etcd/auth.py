"""Authentication: a token for user and password, fetched when it is needed, and again when it has expired."""

from __future__ import annotations

import asyncio

from leasehold.coord.url import ConnectOptions
from leasehold.etcd.endpoints import Endpoint
from leasehold.etcd.errors import Verdict, meaning
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.transport.channel import Metadata
from leasehold.etcd.transport.failures import RpcFailed

# Has the server end a stream when its member loses the leader. Otherwise the stream would stay open and silent.
REQUIRE_LEADER: Metadata = (("hasleader", "true"),)


class Authenticator:
    """Holds the token. Without a user there is no token, and nothing is fetched."""

    def __init__(self, options: ConnectOptions) -> None:
        self._user, self._password = options.user, options.password
        self._token: str | None = None
        self._lock = asyncio.Lock()
        self.enabled = bool(options.user)

    async def metadata(self, endpoint: Endpoint, timeout_s: float) -> Metadata:
        """The metadata of a call. Fetches a token from `endpoint` if there is none."""
        if not self.enabled:
            return ()
        if self._token is None:
            async with self._lock:
                if self._token is None:
                    self._token = await self._fetch(endpoint, timeout_s)
        return (("token", self._token or ""),)

    async def _fetch(self, endpoint: Endpoint, timeout_s: float) -> str:
        request = rpc_pb2.AuthenticateRequest(name=self._user, password=self._password)
        try:
            answer: rpc_pb2.AuthenticateResponse
            answer = await endpoint.unary["Authenticate"](request, timeout=timeout_s)
        except RpcFailed as error:
            if meaning(error).verdict is Verdict.UNKNOWN:  # only of the token: the call that needs it was not sent
                raise RpcFailed(error.code, f"no token: {error.message}", sent=False) from None
            raise
        return answer.token

    def forget(self, metadata: Metadata) -> None:
        """Drop the token in `metadata`, which was refused. A token that was fetched since is kept."""
        if metadata == (("token", self._token or ""),):
            self._token = None
