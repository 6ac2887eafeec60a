"""Lend a host's memory to the pool: mount it, ping the master, mount again on request, and unmount at the end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable

import structlog

from leasehold.base.codes import ClientStatus
from leasehold.base.errors import LeaseholdError
from leasehold.index.model import NATIVE_PROTOCOL
from leasehold.pool.host import Host
from leasehold.runtime.clock import BootClock
from leasehold.wire.client import Client
from leasehold.wire.errors import MasterError, RpcRefused
from leasehold.wire.frame import Err
from leasehold.wire.messages import Segment
from leasehold.wire.native import HOST_PING, HostAnswer, HostPing

log = structlog.get_logger()

_TAKE_BACK_S = 1.0  # an operator waits; a master that is down detects the missing host anyway
_TROUBLE = {
    False: "the master is unreachable; the memory is kept, and the request is repeated",
    True: "the master refuses the segment; the request is repeated",
}


class Lending:
    """One segment, kept mounted while this runs. `secrets_now` returns the secrets in the cluster's file now."""

    def __init__(
        self,
        host: Host,
        client: Client,
        *,
        name: str = "",
        ping_interval_ms: int = 1_000,
        secrets_now: Callable[[], tuple[bytes, ...]] = tuple,
    ) -> None:
        self._client = client
        self._admission = host.admission
        self._secrets_now = secrets_now
        self._clock = BootClock()
        self._ping_interval_s = ping_interval_ms / 1_000
        endpoint = host.endpoint
        self.segment = Segment(
            secrets.token_bytes(16), name or endpoint, host.base, host.size, endpoint, NATIVE_PROTOCOL,
            endpoint.rpartition(":")[0],
        )  # fmt: skip
        self.mounted = asyncio.Event()
        self._pinging = asyncio.Lock()  # one at a time, so that their answers arrive in order
        self._pings = 0  # sent
        self._answered = 0  # the last of them that was answered
        self._issued: int | None = None
        self._warned = False
        self._admission.ask_with(self._ask_issued)
        if self._admission.verifier is not None:
            self._admission.verifier.lend(self.segment.id)

    async def run(self) -> None:
        """Run until cancelled. While the master is down, the memory and its contents are kept."""
        failing = ""
        while True:
            try:
                await self._turn()
                failing = ""
            except LeaseholdError as error:
                if failing != str(error):
                    log.warning(_TROUBLE[isinstance(error, MasterError)], reason=str(error))
                failing = str(error)
            await asyncio.sleep(self._ping_interval_s)

    async def _turn(self) -> None:
        if not self.mounted.is_set():
            await self._client.mount_segment(self.segment)
            self._admission.fence.clear()
            self._admission.lend()
            await self._client.remount_segment([self.segment])
            await self._ping()
            self.mounted.set()
            log.info("the segment is mounted", segment=self.segment.name, bytes=self.segment.size)
        elif await self._ping() == ClientStatus.NEED_REMOUNT:
            self._admission.fence.clear()  # space that late writers may write to is quarantined by the master
            await self._client.remount_segment([self.segment])
            await self._ping()
            log.info("the segment is mounted again, as the master requested", segment=self.segment.name)

    async def _ping(self) -> int:
        """Report to the master. Returns the `ClientStatus` that it answers."""
        async with self._pinging:
            return await self._exchange()

    async def _exchange(self) -> int:
        verifier = self._admission.verifier
        self._pings += 1
        window = verifier.windows.open() if verifier is not None else 0
        try:
            ping = HostPing(self._client.client_id, self.segment.id, window, self._admission.counts())
            answer = await self._client.calls.own(HOST_PING, ping, repeat=True)
        except RpcRefused as error:
            if error.err != Err.NOT_REGISTERED:
                raise
            return (await self._client.ping()).client_status  # a master of 0.1.0
        self._issued, self._answered = answer.issued, self._pings
        self._admission.learned(answer.issued)
        self._follow(answer, window)
        return answer.client_status

    async def _ask_issued(self) -> int | None:
        """The highest token that the master has given out, no older than this question."""
        before = self._pings
        async with self._pinging:
            if self._answered <= before:  # else another question was answered meanwhile
                try:
                    await self._exchange()
                except LeaseholdError:
                    return None
            return self._issued

    def _follow(self, answer: HostAnswer, window: int) -> None:
        """Judge requests as of this answer."""
        verifier, now_ms = self._admission.verifier, self._clock.now_ms()
        if verifier is None:
            return
        verifier.keyring.update(now_ms, self._secrets_now(), answer.release_ms)
        verifier.windows.answered(now_ms, answer.epoch, window)
        if answer.incarnation:
            verifier.mounted(answer.incarnation)
        if not answer.signs and not self._warned:
            log.warning("the master has no cluster secret, so every read and write is refused: give it the secret file")
        self._warned = not answer.signs

    async def take_back(self) -> None:
        """Unmount, if the master is reachable."""
        if self.mounted.is_set():
            with contextlib.suppress(LeaseholdError, TimeoutError):
                async with asyncio.timeout(_TAKE_BACK_S):
                    await self._client.unmount_segment(self.segment.id)
