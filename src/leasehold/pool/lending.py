"""Lend a host's memory to the pool: mount it, ping the master, mount again on request, and unmount at the end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

import structlog

from leasehold.base.codes import ClientStatus
from leasehold.base.errors import LeaseholdError
from leasehold.index.model import NATIVE_PROTOCOL
from leasehold.pool.host import Host
from leasehold.wire.client import Client
from leasehold.wire.errors import MasterError
from leasehold.wire.messages import Segment

log = structlog.get_logger()

_TAKE_BACK_S = 1.0  # an operator waits; a master that is down detects the missing host anyway
_TROUBLE = {
    False: "the master is unreachable; the memory is kept, and the request is repeated",
    True: "the master refuses the segment; the request is repeated",
}


class Lending:
    """One segment, kept mounted while this runs."""

    def __init__(self, host: Host, client: Client, *, name: str = "", ping_interval_ms: int = 1_000) -> None:
        self._client = client
        self._fence = host.fence
        self._ping_interval_s = ping_interval_ms / 1_000
        endpoint = host.endpoint
        self.segment = Segment(
            secrets.token_bytes(16), name or endpoint, host.base, host.size, endpoint, NATIVE_PROTOCOL,
            endpoint.rpartition(":")[0],
        )  # fmt: skip
        self.mounted = asyncio.Event()

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
            self._fence.clear()
            await self._client.remount_segment([self.segment])
            self.mounted.set()
            log.info("the segment is mounted", segment=self.segment.name, bytes=self.segment.size)
            return
        answer = await self._client.ping()
        if answer.client_status == ClientStatus.NEED_REMOUNT:
            self._fence.clear()  # space that late writers may write to is quarantined by the master
            await self._client.remount_segment([self.segment])
            log.info("the segment is mounted again, as the master requested", segment=self.segment.name)

    async def take_back(self) -> None:
        """Unmount, if the master is reachable."""
        if self.mounted.is_set():
            with contextlib.suppress(LeaseholdError, TimeoutError):
                async with asyncio.timeout(_TAKE_BACK_S):
                    await self._client.unmount_segment(self.segment.id)
