"""One call to a cluster: tried at one endpoint after the other until it is answered or its deadline passes.

A call that is safe to repeat is retried. Any other call raises `UnknownOutcome` as soon as it may have been done; it is
retried only if it certainly was not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from os import getpid
from typing import Any

from leasehold.base.errors import LeaseholdError, Unavailable, UnknownOutcome
from leasehold.coord.errors import AuthenticationFailed, ClientClosed, ForkedClient, MemberBehind
from leasehold.coord.url import ConnectOptions
from leasehold.etcd.auth import Authenticator
from leasehold.etcd.endpoint_search import PAUSE_S, Search
from leasehold.etcd.endpoints import Endpoint, Endpoints
from leasehold.etcd.errors import Failure, Verdict, meaning
from leasehold.etcd.transport.call import UnaryCall
from leasehold.etcd.transport.channel import Metadata, UnaryMethod
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.mvcc.errors import Code

TOKENS_PER_CALL_MAX = 3


class Caller:
    """Makes calls. Remembers the highest revision seen, so that no later read shows an older state."""

    def __init__(self, endpoints: Endpoints, authenticator: Authenticator, options: ConnectOptions) -> None:
        self.endpoints = endpoints
        self.closed = False
        self._authenticator = authenticator
        self._timeout_s = options.timeout_s
        self._attempt_timeout_s = options.attempt_timeout_s
        self._highest_revision = 0
        self._pid = getpid()
        self._loop = asyncio.get_running_loop()
        self._plain = not authenticator.enabled
        self._first_attempt_s = self.attempt_timeout_s(0)
        self.search = Search(endpoints, authenticator, options)

    def check_usable(self) -> None:
        """Raise if the client was closed, or opened by another process."""
        if self.closed:
            raise ClientClosed
        if self._pid != getpid():
            raise ForkedClient

    def saw(self, revision: int) -> None:
        """The caller has seen `revision`: no later read may show an older state."""
        if revision > self._highest_revision:
            self._highest_revision = revision

    async def call(
        self, name: str, request: Any, timeout_s: float | None, *, safe: bool, guard: bool = False, local: bool = False
    ) -> Any:
        """Call `name` until answered.

        `safe`: it may be repeated. `guard`: an answer older than the highest revision seen is rejected. `local`: a
        member can answer it without a leader.
        """
        if self.closed or self._pid != getpid():
            self.check_usable()
        now_s = self._loop.time
        started_s = now_s()
        if timeout_s is None:
            timeout_s = self._timeout_s
        seen = self._highest_revision
        endpoint = self.endpoints.current
        failure: Failure | None = None
        response = None
        # The common case: connected, and answered. Going through `_Task` would make the call a tenth slower.
        if endpoint.proven and self._plain and timeout_s > 0 and endpoint.channel.connection is not None:
            limit_s = timeout_s if timeout_s < self._first_attempt_s else self._first_attempt_s
            try:
                response = await endpoint.unary[name](request, timeout=limit_s)
                endpoint.last_seen_s = now_s()
                revision = response.header.revision
                if revision > seen:
                    self.saw(revision)
                    return response
                if revision == seen or not guard:
                    return response
            except RpcFailed as error:
                failure = meaning(error)
        task = _Task(self, name, safe, local, started_s + timeout_s)
        if failure is not None:
            task.failed(endpoint, failure)
        elif response is not None:
            task.behind(endpoint, response.header.revision, seen)
        return await self._repeat(task, request, seen if guard else 0)

    def write(
        self,
        name: str,
        message: bytes,
        timeout_s: float,
        answered: Callable[[Endpoint, bytes, float], None],
        failed: Callable[[Endpoint, RpcFailed, float], None],
    ) -> UnaryCall | None:
        """Send an encoded write to the endpoint in use, without a task or a future.

        Exactly one of the callbacks is called, later, with the endpoint and the deadline of the whole call. After a
        failure, `after_failure` goes on. Returns None, without having sent anything, if the caller must use `call`.
        """
        endpoint = self.endpoints.current
        connection = endpoint.channel.connection
        if connection is None or not endpoint.proven or not self._plain or timeout_s <= 0:
            return None
        if self.closed or self._pid != getpid():
            return None
        end_s = self._loop.time() + timeout_s

        def done(answer: bytes | RpcFailed) -> None:
            if isinstance(answer, RpcFailed):
                failed(endpoint, answer, end_s)
            else:
                endpoint.last_seen_s = self._loop.time()
                answered(endpoint, answer, end_s)

        limit_s = timeout_s if timeout_s < self._first_attempt_s else self._first_attempt_s
        method: UnaryMethod = endpoint.unary[name]
        return method.start(connection, message, limit_s, done)

    async def after_failure(self, name: str, request: Any, endpoint: Endpoint, error: RpcFailed, end_s: float) -> Any:
        """Go on with a write whose first attempt failed: raise, or repeat it if it certainly was not done."""
        task = _Task(self, name, False, False, end_s)
        task.failed(endpoint, meaning(error))
        return await self._repeat(task, request, 0)

    async def _repeat(self, task: _Task, request: Any, revision_min: int) -> Any:
        """Try until answered. An answer older than `revision_min` is rejected."""
        while True:
            await task.pause()
            response = await task.attempt(request)
            if response is not None:
                revision = response.header.revision
                if revision >= revision_min:
                    self.saw(revision)
                    return response
                task.behind(self.endpoints.current, revision, revision_min)

    def attempt_timeout_s(self, timeouts: int) -> float:
        """The time limit for one endpoint. It doubles after every timeout: the endpoint may be slow but alive."""
        if len(self.endpoints) == 1:
            return float("inf")  # there is no other endpoint
        return float(self._attempt_timeout_s * 2**timeouts)

    async def metadata(self, endpoint: Endpoint, timeout_s: float) -> Metadata:
        return await self._authenticator.metadata(endpoint, timeout_s)

    def renew_token(self, stale: Metadata) -> bool:
        """Drop the token that was refused. Returns False if there is no user, and so no other token."""
        self._authenticator.forget(stale)
        return self._authenticator.enabled


class _Task:
    """One call over all of its attempts."""

    __slots__ = (
        "_attempts",
        "_caller",
        "_end_s",
        "_last",
        "_local",
        "_loop",
        "_name",
        "_pause_s",
        "_safe",
        "_timeouts",
        "_tokens",
    )

    def __init__(self, caller: Caller, name: str, safe: bool, local: bool, end_s: float) -> None:
        self._caller = caller
        self._name = name
        self._safe = safe
        self._local = local
        self._loop = asyncio.get_running_loop()
        self._end_s = end_s
        self._attempts = self._timeouts = self._tokens = 0
        self._pause_s = 0.0
        self._last: LeaseholdError | None = None

    async def attempt(self, request: Any) -> Any:
        """The answer of the endpoint in use, or None if the call must be tried again."""
        caller = self._caller
        if caller.closed:
            raise ClientClosed
        left_s = self._end_s - self._loop.time()
        if left_s <= 0:
            raise self._last or Unavailable(f"{self._name}: the time limit passed before anything was sent")
        self._attempts += 1
        limit_s = min(left_s, caller.attempt_timeout_s(self._timeouts))
        if not (self._local or caller.endpoints.current.proven):
            await caller.search.find(limit_s)
        endpoint = caller.endpoints.current
        metadata: Metadata = ()
        try:
            if not await endpoint.ready(limit_s, insist=len(caller.endpoints) == 1):
                why = f"no connection: {endpoint.channel.failure or 'not in time'}"
                return self.failed(endpoint, Failure(Verdict.NOT_DONE, Code.UNAVAILABLE, why))
            metadata = await caller.metadata(endpoint, limit_s)
            response = await endpoint.unary[self._name](request, timeout=limit_s, metadata=metadata)
        except RpcFailed as error:
            return self.failed(endpoint, meaning(error), metadata)
        endpoint.last_seen_s = self._loop.time()
        if not self._local:
            endpoint.proven = True
        return response

    def behind(self, endpoint: Endpoint, revision: int, seen: int) -> None:
        """The answer is older than a revision already seen: try another member."""
        self._last = MemberBehind(
            f"{self._name}: only members at revision {revision} answered, but {seen} has been seen; "
            "a lagging member catches up: repeat; a restored backup does not: open a new client"
        )
        self._leave(endpoint)

    async def pause(self) -> None:
        if self._pause_s:
            await asyncio.sleep(min(self._pause_s, max(0.0, self._end_s - self._loop.time())))
            self._pause_s = 0.0

    def failed(self, endpoint: Endpoint, failure: Failure, metadata: Metadata = ()) -> None:
        """Raise if the call has failed for the caller, else prepare the next attempt."""
        verdict = failure.verdict
        if verdict is Verdict.ANSWERED:
            endpoint.last_seen_s = self._loop.time()
            raise failure.to_error()
        if verdict is Verdict.TOKEN:
            self._tokens += 1
            if not self._caller.renew_token(metadata) or self._tokens > TOKENS_PER_CALL_MAX:
                raise AuthenticationFailed(failure.message, failure.code)
            return
        where = f"{self._name} at {endpoint.address}: {failure.message}"
        if verdict is Verdict.BUSY:
            self._last = Unavailable(f"{where}; nothing was done, repeat later")
            self._pause_s = PAUSE_S
            return
        if failure.code is Code.DEADLINE_EXCEEDED:
            self._timeouts += 1
            endpoint.renew()
        self._leave(endpoint)
        if verdict is Verdict.UNKNOWN and not self._safe:
            if self._caller.closed:
                where = f"{self._name}: the client was closed"
            raise UnknownOutcome(f"{where}; it was sent and may have been done: read before you repeat")
        self._last = Unavailable(f"{where}; nothing was done, repeating is safe")

    def _leave(self, endpoint: Endpoint) -> None:
        self._caller.endpoints.leave(endpoint)
        if self._attempts % len(self._caller.endpoints) == 0:
            self._pause_s = PAUSE_S
