"""Clients that use a master and remember its answers, so that tests can check them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from leasehold.base.errors import LeaseholdError, PeerError, UnknownOutcome
from leasehold.runtime.clock import BootClock
from leasehold.wire.client import Client
from leasehold.wire.errors import MasterError
from leasehold.wire.messages import ClientStatus, Segment
from leasehold.wire.schema import Failed

PING_S = 1.0
BASE = 0x7F00_0000_0000


class Lender:
    """Mounts segments (without real memory) and pings: a storage client as the master sees it."""

    def __init__(
        self, master: str, *, size: int = 1 << 30, segments: int = 1, protocol: str = "tcp", like: Lender | None = None
    ) -> None:
        """`like`: use the endpoints of another lender with new ids, as after a restart of its process."""
        self.client = Client(master, timeout_ms=20_000)
        name = like.segments[0].name.rpartition("-")[0] if like is not None else secrets.token_hex(4)
        self.segments: list[Segment] = [
            Segment(
                secrets.token_bytes(16), f"{name}-{i}", BASE + i * (size + (1 << 30)), size, f"{name}-{i}:1", protocol
            )
            for i in range(segments)
        ]
        self.remounts = 0
        self._pinging: asyncio.Task[None] | None = None

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            with contextlib.suppress(PeerError, UnknownOutcome):
                answer = await self.client.ping()
                if answer.client_status == ClientStatus.NEED_REMOUNT:
                    self.remounts += 1
                    await self.client.remount_segment(self.segments)

    async def __aenter__(self) -> Self:
        for segment in self.segments:
            await self.client.mount_segment(segment)
        self._pinging = asyncio.get_running_loop().create_task(self._ping())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pinging
        with contextlib.suppress(LeaseholdError, TimeoutError):
            async with asyncio.timeout(10):  # the next test has its own segments
                for segment in self.segments:
                    await self.client.unmount_segment(segment.id)
        self.client.close()


@dataclass(slots=True)
class Results:
    """The answers that a client got, by key."""

    acknowledged: set[str] = field(default_factory=set)  # puts that were answered
    removed: set[str] = field(default_factory=set)  # removes that were answered
    unknown: set[str] = field(default_factory=set)  # keys of calls with an unknown outcome
    failures: list[str] = field(default_factory=list)


class Putter:
    """Puts keys in batches and remembers which were acknowledged. `gap_ms_max` is the longest time without success."""

    def __init__(self, master: str, prefix: str, *, size: int = 1024, timeout_ms: int = 20_000) -> None:
        self.client = Client(master, timeout_ms=timeout_ms)
        self.results = Results()
        self.gap_ms_max = 0
        self._prefix = f"{prefix}-{secrets.token_hex(3)}"  # unique keys, also on a shared cluster
        self._size = size
        self._count = 0
        self._clock = BootClock()
        self._good_ms = self._clock.now_ms()

    def key(self, number: int) -> str:
        """The name of this putter's `number`th key."""
        return f"{self._prefix}-{number}"

    def _succeeded(self) -> None:
        now_ms = self._clock.now_ms()
        self.gap_ms_max = max(self.gap_ms_max, now_ms - self._good_ms)
        self._good_ms = now_ms

    async def put_batch(self, count: int) -> None:
        """Put one batch of new keys. Failures and unknown outcomes are remembered, not raised."""
        keys = [self.key(self._count + i) for i in range(count)]
        self._count += count
        try:
            started = await self.client.batch_put_start(keys, [self._size] * count)
            good = [key for key, answer in zip(keys, started, strict=True) if not isinstance(answer, Failed)]
            for key, answer in zip(keys, started, strict=True):
                if isinstance(answer, Failed):
                    self.results.failures.append(f"put_start {key}: {answer.code}")
            ended = await self.client.batch_put_end(good) if good else []
        except (UnknownOutcome, PeerError) as error:
            self.results.unknown.update(keys)
            self.results.failures.append(f"{type(error).__name__}: {error}")
            return
        for key, outcome in zip(good, ended, strict=True):
            if outcome is None:
                self.results.acknowledged.add(key)
            else:
                self.results.failures.append(f"put_end {key}: {outcome.code}")
        if good:
            self._succeeded()

    async def run(self, stop: asyncio.Event, batch: int = 50) -> None:
        while not stop.is_set():
            await self.put_batch(batch)

    async def remove(self, key: str, *, force: bool = True) -> None:
        try:
            await self.client.remove(key, force=force)
        except MasterError as error:
            self.results.failures.append(f"remove {key}: {error.code}")
        except LeaseholdError:
            self.results.unknown.add(key)
        else:
            self.results.removed.add(key)
            self.results.acknowledged.discard(key)

    def close(self) -> None:
        self.client.close()


async def missing(master: str, keys: Sequence[str], *, batch: int = 500) -> list[str]:
    """The keys that the master does not have: lost ones, if all of them were acknowledged."""
    lost: list[str] = []
    async with Client(master, timeout_ms=20_000) as client:
        for at in range(0, len(keys), batch):
            part = keys[at : at + batch]
            lost += [
                key for key, there in zip(part, await client.batch_exist_key(part), strict=True) if there is not True
            ]
    return lost


async def recovery_ms(master: str, key: str, *, timeout_s: float = 60.0) -> int:
    """The time from now until a call about `key` is answered correctly. A false miss raises."""
    clock = BootClock()
    start_ms = clock.now_ms()
    async with Client(master, timeout_ms=int(timeout_s * 1000)) as client:
        if not await client.exist_key(key):
            raise AssertionError(f"a false miss: {key} was acknowledged and is reported as absent")
    return clock.now_ms() - start_ms
